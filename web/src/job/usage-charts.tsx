// SPDX-License-Identifier: Apache-2.0

import { FormSelect, FormSelectOption, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { useState } from 'react';
import { CurveChart } from './curve-chart';
import { formats, resources, roleOf, samplesOf } from './usage';
import type { Usage } from './use-reports';

/** UsageCharts shows what one pod has used in the time range, with one chart for each resource that has values. */
export function UsageCharts({ report }: { report: Usage }) {
  const pods = [...(report.launcher ? [report.launcher] : []), ...report.workers];
  const [chosen, setChosen] = useState('');
  // The launcher of most jobs only waits: a worker says more.
  const pod = pods.find(({ podName }) => podName === chosen) ?? report.workers[0] ?? report.launcher;
  if (!pod) return null;
  const charts = resources.map((resource) => ({ ...resource, points: samplesOf(pod, resource.field) })).filter(({ points }) => points.length > 1);
  return (
    <>
      <Toolbar aria-label="Usage over time" inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem>
            <FormSelect aria-label="Pod of the charts" value={pod.podName} onChange={(_, value) => setChosen(value)}>
              {pods.map((one) => (
                <FormSelectOption key={one.podName} value={one.podName} label={`${roleOf(one)} over time`} />
              ))}
            </FormSelect>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {charts.length === 0 && <p>There are not enough values of this pod for a chart.</p>}
      <div className="tr-charts">
        {charts.map(({ field, name, points }) => (
          <figure key={field} aria-label={name}>
            <figcaption>{name}</figcaption>
            <CurveChart metric={name} axis="time" series={[{ name: roleOf(pod), points }]} format={formats[field]} />
          </figure>
        ))}
      </div>
    </>
  );
}
