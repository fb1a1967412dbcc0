/** A chart over time, or along another number, in the colours of the theme. */
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
  /** Draw over places without a value, as where several lines have values at different places. */
  readonly joined?: boolean;
}

interface Props {
  readonly title: string;
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly unit?: (value: number) => string;
  /** What `times` are if they are no times: the name of the number, and how one is shown. */
  readonly along?: {
    readonly name: string;
    readonly show: (value: number) => string;
    /** Where the axis has its marks, if not at round numbers. */
    readonly marks?: readonly number[];
    /** There is nothing between two whole numbers. */
    readonly whole?: boolean;
  };
}

const HEIGHT = 180;

/** Colours of lines that stand beside each other and mean nothing by themselves. */
export const SERIES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"] as const;

const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
const marksOf = (marks: readonly number[] | undefined): Partial<uPlot.Axis> =>
  marks ? { splits: (_, __, low, high) => marks.filter((mark) => mark >= low && mark <= high), filter: (_, splits) => splits } : {};

/** Let the legend show the last value of each line while nothing is pointed at. */
function showLast(plot: uPlot): void {
  if (plot.cursor.idx != null) return;
  const lastOf = (values: ArrayLike<number | null | undefined>) => Array.from(values).findLastIndex((value) => value != null);
  plot.setLegend({ idxs: plot.data.map((values) => lastOf(values)).map((place) => (place < 0 ? null : place)) }, false);
}

export function Chart({ title, times, lines, unit = String, along }: Props) {
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
        padding: [null, 26, null, null], // for the half of the last label
        cursor: { sync: { key: along?.name ?? "time" } },
        legend: { live: true },
        hooks: { setLegend: [showLast] },
        scales: {
          x: { time: !along },
          y: { range: (_, low, high) => [Math.min(0, low), along && high > 0 ? high * 1.1 : Math.max(1, high * 1.1)] },
        },
        axes: [along ? { ...axis, values: (_, ticks) => ticks.map(along.show), ...marksOf(along.marks), ...(along.whole ? { incrs: WHOLE } : {}) } : axis, { ...axis, size: 68, values: (_, ticks) => ticks.map((tick) => unit(tick)) }],
        series: [
          along ? { label: along.name, value: (_: uPlot, value: number | null) => (value === null ? "–" : along.show(value)) } : {},
          ...lines.map((line) => ({
            label: line.name,
            stroke: named(line.colour),
            width: 2,
            spanGaps: line.joined ?? false,
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
      <div ref={box} class="chart" role="img" aria-label={`${title} ${along ? `along ${along.name}` : "over time"}. Latest: ${last}.`} />
    </Panel>
  );
}
