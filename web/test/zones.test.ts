import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldOf, momentOf, ticksOf, timeIn, wallOf } from "../src/lib/zones.ts";

const BERLIN = "Europe/Berlin";
const at = (text: string) => Date.parse(text);

test("a time is said in the zone of the schedule, with seconds and another year only where there are some", () => {
  assert.match(timeIn(at("2026-11-17T01:00:00Z"), BERLIN, "short", at("2026-11-16T00:00:00Z")), /^Tue, Nov 17, 02:00.*(CET|GMT\+1)$/);
  assert.match(timeIn(at("2027-01-01T01:00:05Z"), "UTC", "", at("2026-11-16T00:00:00Z")), /2027.*01:00:05/);
});

test("a zone that this browser does not know is shown in UTC", () => {
  assert.equal(timeIn(at("2026-11-17T01:00:00Z"), "Mars/Olympus", ""), timeIn(at("2026-11-17T01:00:00Z"), "UTC", ""));
});

test("what the wall shows and when it shows it are each other's reverse, on both sides of a change of the clock", () => {
  for (const moment of ["2026-10-24T22:00:00Z", "2026-10-25T12:00:00Z", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"])
    assert.equal(momentOf(wallOf(at(moment), BERLIN), BERLIN), at(moment), moment);
  assert.equal(fieldOf(at("2026-07-01T22:30:00Z"), BERLIN), "2026-07-02T00:30");
});

test("marks along an axis are at midnights of the zone, also over a change of the clock", () => {
  const ticks = ticksOf(at("2026-10-23T10:00:00Z"), at("2026-10-28T10:00:00Z"), BERLIN, 6);
  assert.deepEqual(
    ticks.map((tick) => new Date(tick.at).toISOString()),
    ["2026-10-23T22:00:00.000Z", "2026-10-24T22:00:00.000Z", "2026-10-25T23:00:00.000Z", "2026-10-26T23:00:00.000Z", "2026-10-27T23:00:00.000Z"],
  );
});

test("there are never more marks than asked for, from seconds to centuries", () => {
  for (const span of [3_000, 90_000, 3_600_000, 86_400_000, 30 * 86_400_000, 365 * 86_400_000, 100 * 365 * 86_400_000]) {
    const ticks = ticksOf(at("2026-10-23T10:00:03Z"), at("2026-10-23T10:00:03Z") + span, BERLIN, 6);
    assert.ok(ticks.length >= 1 && ticks.length <= 6, `${span}: ${ticks.length}`);
  }
});

test("weeks begin on a Monday", () => {
  const [first] = ticksOf(at("2026-11-10T10:00:00Z"), at("2026-12-20T10:00:00Z"), "UTC", 6);
  assert.equal(new Date(first?.at ?? 0).getUTCDay(), 1);
});
