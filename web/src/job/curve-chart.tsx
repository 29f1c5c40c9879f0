// SPDX-License-Identifier: Apache-2.0

import { Chart } from '@patternfly/react-charts/dist/esm/victory/components/Chart/Chart';
import { ChartAxis } from '@patternfly/react-charts/dist/esm/victory/components/ChartAxis/ChartAxis';
import { ChartLine } from '@patternfly/react-charts/dist/esm/victory/components/ChartLine/ChartLine';
import { ChartVoronoiContainer } from '@patternfly/react-charts/dist/esm/victory/components/ChartVoronoiContainer/ChartVoronoiContainer';
import { TextSize } from 'victory-core';
import { duration } from '../shared/time';
import { summaryOf, valueOf, type Axis, type CurvePoint } from './curves';

// Victory measures texts in an element that it empties by innerHTML, which the page's policy
// refuses. Its other way, an approximation by the widths of characters, needs no element.
const measure = TextSize._approximateTextSizeInternal.impl;
TextSize._approximateTextSizeInternal.impl = (text, style) => measure(text, style, true);

export interface Series {
  /** name of the job. */
  name: string;
  points: CurvePoint[];
}

/** CurveChart draws one metric of one or two jobs. The second line is dashed, not only of another colour. */
export function CurveChart({ metric, axis, series, format = valueOf }: { metric: string; axis: Axis; series: Series[]; format?: (value: number) => string }) {
  const drawn = series.filter((one) => one.points.length > 0);
  const x = (value: number) => (axis === 'time' ? duration(value) : `step ${value}`);
  return (
    <Chart
      ariaTitle={metric}
      ariaDesc={drawn.map((one) => `${one.name}: ${summaryOf(one.points, format)}`).join('; ')}
      containerComponent={
        <ChartVoronoiContainer
          constrainToVisibleArea
          voronoiDimension="x"
          labels={({ datum }: { datum: CurvePoint & { childName?: string } }) => `${drawn.length > 1 ? `${seriesName(drawn, datum.childName)}, ` : ''}${x(datum.x)}: ${format(datum.y)}`}
        />
      }
      height={220}
      width={520}
      padding={{ top: 10, right: 20, bottom: 45, left: 70 }}
      domainPadding={{ y: 5 }}
    >
      <ChartAxis fixLabelOverlap tickFormat={(value: number) => (axis === 'time' ? duration(value) : valueOf(value))} />
      <ChartAxis dependentAxis showGrid fixLabelOverlap tickFormat={(value: number) => format(value)} />
      {drawn.map((one) => {
        const index = series.indexOf(one);
        return (
          <ChartLine
            key={index}
            name={`series-${index}`}
            data={one.points}
            style={{ data: { stroke: `var(--tr-series-${index})`, strokeWidth: 2, strokeDasharray: index > 0 ? '6,3' : undefined } }}
          />
        );
      })}
    </Chart>
  );
}

const seriesName = (series: Series[], child: string | undefined) => series.find((_, index) => child === `series-${index}`)?.name ?? '';
