/** A chart over time, in the colours of the theme; the same numbers are a table for those who cannot see it. */
import { useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Panel } from "./parts";
import { theme } from "./theme";

export interface Line {
  readonly name: string;
  /** The name of a colour of the theme. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
}

interface Props {
  readonly title: string;
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly unit?: (value: number) => string;
}

const HEIGHT = 180;

export function Chart({ title, times, lines, unit = String }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [times, ...lines.map((line) => line.values)] as unknown as uPlot.AlignedData;
  const shape = lines.map((line) => line.name).join();

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const styles = getComputedStyle(document.documentElement);
    const named = (name: string) => styles.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: named("quiet"), grid: { stroke: named("line"), width: 1 }, ticks: { stroke: named("line"), width: 1 } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        cursor: { sync: { key: "time" } },
        legend: { live: true },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] } },
        axes: [axis, { ...axis, size: 68, values: (_, ticks) => ticks.map((tick) => unit(tick)) }],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.name,
            stroke: named(line.colour),
            width: 2,
            spanGaps: false,
            points: { show: false },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : unit(value)),
          })),
        ],
      },
      data,
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [shape, theme.value]);

  useLayoutEffect(() => plot.current?.setData(data), [times, ...lines.map((line) => line.values)]);

  const last = lines.map((line) => `${line.name} ${unit(line.values.findLast((value) => value !== null) ?? 0)}`).join(", ");
  return (
    <Panel title={title}>
      <div ref={box} class="chart" role="img" aria-label={`${title} over time. Latest: ${last}.`} />
    </Panel>
  );
}
