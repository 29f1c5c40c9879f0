// SPDX-License-Identifier: Apache-2.0

import { Checkbox, EmptyState, EmptyStateBody, ExpandableSection, FormSelect, FormSelectOption, Switch, ToggleGroup, ToggleGroupItem, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { memo, useMemo, useState } from 'react';
import { useSearchParams } from 'react-router';
import { useOptionalRecords } from '../history/records';
import { useJobs } from '../live/live-jobs';
import { Loading, ProblemAlert } from '../shared/states';
import { duration } from '../shared/time';
import { CurveChart, type Series } from './curve-chart';
import { chosenMetrics, hasSteps, pointsOf, rowsOf, valueOf, type Axis } from './curves';
import type { TabProps } from './job-tabs';
import { NotAvailable } from './not-available';
import { otherRuns, runOf, type Run } from './runs';
import { notAvailable, useCurves, type Curve } from './use-reports';

const none: Curve[] = [];

/** CurvesPart shows the metrics of a job over time, one chart for each, beside those of another job. All choices are in the address. */
export function CurvesPart({ job, reference }: TabProps) {
  const [query] = useSearchParams();
  const { rows } = useJobs();
  // Without a history, only the jobs that exist can be compared.
  const records = useOptionalRecords(reference.namespace);
  const { uid = '' } = job.metadata;
  const wanted = query.get('compare') ?? '';
  const other = useMemo(() => runOf(wanted, rows, records, reference.namespace), [wanted, rows, records, reference.namespace]);
  const others = useMemo(() => otherRuns(rows, records, reference, uid, other), [rows, records, reference, uid, other]);
  const curves = useCurves(reference, job.status?.phase === 'Running');
  const compared = useCurves(other?.ref, other?.isRunning ?? false);

  if (curves.error?.code === notAvailable) return <NotAvailable title="This server cannot read the training metrics of jobs" problem={curves.error} />;
  if (curves.isPending) return <Loading label="Loading the metrics" />;
  if (!curves.data) return <ProblemAlert title="The metrics cannot be read" problem={curves.error} />;
  return (
    <>
      {curves.error && <ProblemAlert title="The metrics cannot be read" problem={curves.error} />}
      {compared.error && <ProblemAlert title={`The metrics of ${other?.ref.name} cannot be read`} problem={compared.error} />}
      <Curves curves={curves.data} name={reference.name} others={others} other={other} compared={other ? (compared.data ?? none) : none} />
    </>
  );
}

interface CurvesProps {
  curves: Curve[];
  name: string;
  others: Run[];
  other: Run | undefined;
  compared: Curve[];
}

export function Curves({ curves, name, others, other, compared }: CurvesProps) {
  const [query, setQuery] = useSearchParams();
  const [isTable, setTable] = useState(false);
  const names = [...new Set([...curves, ...compared].map((curve) => curve.name))];
  const chosen = chosenMetrics(names, query.getAll('metric'));
  const canUseSteps = hasSteps(curves) || hasSteps(compared);
  const axis: Axis = query.get('axis') === 'time' || !canUseSteps ? 'time' : 'step';
  const set = (parameter: string, ...values: string[]) => {
    const next = new URLSearchParams(query);
    next.delete(parameter);
    for (const value of values) if (value) next.append(parameter, value);
    setQuery(next, { replace: true });
  };

  return (
    <>
      <Toolbar aria-label="Training metrics" inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem>
            <FormSelect aria-label="Compare with" value={other?.key ?? ''} onChange={(_, value) => set('compare', value)}>
              <FormSelectOption value="" label="Compare with no other job" />
              {others.map((run) => (
                <FormSelectOption key={run.key} value={run.key} label={`Compare with ${run.label}`} />
              ))}
            </FormSelect>
          </ToolbarItem>
          <ToolbarItem>
            <ToggleGroup aria-label="Horizontal axis">
              <ToggleGroupItem text="Step" buttonId="axis-step" isSelected={axis === 'step'} isDisabled={!canUseSteps} onChange={() => set('axis')} />
              <ToggleGroupItem text="Time" buttonId="axis-time" isSelected={axis === 'time'} onChange={() => set('axis', 'time')} />
            </ToggleGroup>
          </ToolbarItem>
          <ToolbarItem alignSelf="center">
            <Switch id="as-table" label="Show as tables" isChecked={isTable} onChange={(_, checked) => setTable(checked)} />
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {names.length === 0 && (
        <EmptyState titleText="No training metrics" headingLevel="h3">
          <EmptyStateBody>A job has curves if its training reports metrics. The operator keeps them until the job is deleted; the history keeps those of finished jobs.</EmptyStateBody>
        </EmptyState>
      )}
      {names.length > 1 && (
        <ExpandableSection toggleText={`Metrics: ${chosen.length} of ${names.length} are shown`}>
          <div className="tr-choices" role="group" aria-label="Metrics">
            {names.map((metric, index) => (
              <Checkbox
                key={metric}
                id={`metric-${index}`}
                label={metric}
                isChecked={chosen.includes(metric)}
                isDisabled={chosen.length === 1 && chosen[0] === metric}
                onChange={(_, checked) => set('metric', ...names.filter((one) => (one === metric ? checked : chosen.includes(one))))}
              />
            ))}
          </div>
        </ExpandableSection>
      )}
      {names.length > 0 && (
        <ul className="tr-series" aria-label="Legend">
          {[name, ...(other ? [other.ref.name] : [])].map((job, index) => (
            <li key={index}>
              <span className={`tr-series__line tr-series__line--${index}`} aria-hidden />
              {job}
            </li>
          ))}
        </ul>
      )}
      <div className="tr-charts">
        {chosen.map((metric) => (
          <Metric key={metric} metric={metric} axis={axis} isTable={isTable} name={name} curves={curves} otherName={other?.ref.name} compared={compared} />
        ))}
      </div>
    </>
  );
}

interface MetricProps {
  metric: string;
  axis: Axis;
  isTable: boolean;
  name: string;
  curves: Curve[];
  otherName: string | undefined;
  compared: Curve[];
}

/** Metric is one metric as a chart or a table. Charts are slow to render, so only a report renders them again, not each event of the watch. */
const Metric = memo(function Metric({ metric, axis, isTable, name, curves, otherName, compared }: MetricProps) {
  const series: Series[] = [{ name, points: pointsOf(curves, metric, axis) }];
  if (otherName !== undefined) series.push({ name: otherName, points: pointsOf(compared, metric, axis) });
  return (
    <figure aria-label={metric}>
      <figcaption>{metric}</figcaption>
      {isTable ? <CurveTable metric={metric} axis={axis} series={series} /> : <CurveChart metric={metric} axis={axis} series={series} />}
    </figure>
  );
});

function CurveTable({ metric, axis, series }: { metric: string; axis: Axis; series: Series[] }) {
  return (
    <div className="tr-charts__table" tabIndex={0} role="region" aria-label={`Values of ${metric}`}>
      <Table aria-label={metric} variant="compact" isStickyHeader>
        <Thead>
          <Tr>
            <Th modifier="wrap">{axis === 'time' ? 'Time since the first report' : 'Step'}</Th>
            {series.map((one, index) => (
              <Th key={index} modifier="wrap">
                {one.name}
              </Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {rowsOf(series.map((one) => one.points)).map(({ x, values }) => (
            <Tr key={x}>
              <Td>{axis === 'time' ? duration(x) : x}</Td>
              {values.map((value, index) => (
                <Td key={index}>{value === undefined ? '' : valueOf(value)}</Td>
              ))}
            </Tr>
          ))}
        </Tbody>
      </Table>
    </div>
  );
}
