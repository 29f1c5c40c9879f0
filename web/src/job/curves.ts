// SPDX-License-Identifier: Apache-2.0

import { secondsBetween } from '../shared/time';
import type { Curve } from './use-reports';

/** Axis is what a curve is drawn over: the steps of the training, or the time since its first report. */
export type Axis = 'step' | 'time';

export interface CurvePoint {
  x: number;
  y: number;
}

/** firstTime is when a job first reported a metric; jobs are compared by the time since then. */
export const firstTime = (curves: Curve[]): string => curves.flatMap((curve) => curve.points[0]?.time ?? []).sort()[0] ?? '';

/** hasSteps: a training may report metrics without steps; then only time makes an axis. */
export const hasSteps = (curves: Curve[]) => curves.some((curve) => curve.points.some((point) => typeof point.step === 'number'));

/** pointsOf returns the points of a metric over an axis; those without a step are left out of the axis of steps. */
export function pointsOf(curves: Curve[], name: string, axis: Axis): CurvePoint[] {
  const curve = curves.find((one) => one.name === name);
  if (!curve) return [];
  const start = firstTime(curves);
  return curve.points.flatMap(({ step, time, value }) => {
    if (axis === 'time') return [{ x: secondsBetween(start, time), y: value }];
    return typeof step === 'number' ? [{ x: step, y: value }] : [];
  });
}

/** chosenMetrics are those of an address that exist, or the first ones: most trainings report the important ones first. */
export function chosenMetrics(names: string[], wanted: string[]): string[] {
  const known = wanted.filter((name) => names.includes(name));
  return known.length > 0 ? known : names.slice(0, 4);
}

/** rowsOf is the table of a metric: the values of all jobs by x, in order. */
export function rowsOf(series: CurvePoint[][]): { x: number; values: (number | undefined)[] }[] {
  const rows = new Map<number, (number | undefined)[]>();
  series.forEach((points, index) => {
    for (const { x, y } of points) {
      const values = rows.get(x) ?? series.map(() => undefined);
      values[index] = y;
      rows.set(x, values);
    }
  });
  return [...rows].sort(([a], [b]) => a - b).map(([x, values]) => ({ x, values }));
}

/** valueOf writes a value with four digits: 0.3127, 12040, 1.2e-5. */
export function valueOf(value: number): string {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e7) return value.toExponential(2);
  return String(size >= 1000 ? Math.round(value) : Number(value.toPrecision(4)));
}

/** summaryOf says in words what a chart shows. */
export function summaryOf(points: CurvePoint[], format = valueOf): string {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return 'no values';
  const values = points.map((point) => point.y);
  return `${points.length} values, from ${format(first.y)} to ${format(last.y)}, lowest ${format(Math.min(...values))}, highest ${format(Math.max(...values))}`;
}
