/** Moments along a line, to scale, in a time zone of their own. */
import { exact } from "../lib/time";
import { ownZone, ticksOf, timeIn } from "../lib/zones";
import "../styles/axis.css";

const MOST_TICKS = 8;

interface Props {
  readonly title: string;
  /** Where it begins, in ms; it ends at the last moment. */
  readonly from: number;
  readonly times: readonly string[];
  readonly zone: string;
  /** What stands where it begins. */
  readonly begin?: string;
}

export function Axis({ title, from, times, zone, begin = "" }: Props) {
  const moments = times.map((each) => Date.parse(each));
  const first = Math.min(from, ...moments);
  const last = Math.max(first + 1_000, ...moments);
  // By a transform, not by a place: what slides along while time passes is no shift of the layout.
  const slide = (at: number) => ({ transform: `translateX(${((100 * (at - first)) / (last - first)).toFixed(3)}%)` });
  return (
    <div class="axis" role="img" aria-label={`${title}, in ${zone}`}>
      <div class="track">
        {begin && <span class="begin">{begin}</span>}
        {ticksOf(first, last, zone, MOST_TICKS).map((tick) => (
          <span key={tick.at} class="at tick" style={slide(tick.at)}>
            <span>{tick.label}</span>
          </span>
        ))}
        {moments.map((at, place) => (
          <span key={at} class="at mark" style={slide(at)}>
            <span title={elsewhere(times[place] ?? "", zone)} />
          </span>
        ))}
      </div>
    </div>
  );
}

/** A time in the zone of a schedule; the reader's own when it is pointed at. */
export function TimeIn({ at, zone }: { at: string; zone: string }) {
  return (
    <time dateTime={at} title={elsewhere(at, zone)} class="nowrap">
      {timeIn(Date.parse(at), zone, "")}
    </time>
  );
}

function elsewhere(at: string, zone: string): string {
  return `${timeIn(Date.parse(at), zone, "short")} in ${zone}\n${exact(at)} in ${ownZone()}, where you are`;
}
