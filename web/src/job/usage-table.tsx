// SPDX-License-Identifier: Apache-2.0

import { Alert, Content, FormSelect, FormSelectOption, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useState } from 'react';
import { Loading, ProblemAlert } from '../shared/states';
import type { TabProps } from './job-tabs';
import { formats, resources, usageOf } from './usage';
import { UsageCharts } from './usage-charts';
import { timeRanges, useUsage, type TimeRange } from './use-reports';

const rangeNames: Record<TimeRange, string> = { '1h': 'Last hour', '6h': 'Last 6 hours', '24h': 'Last 24 hours', '7d': 'Last 7 days' };

/** UsageTable shows what each pod uses now, its peak in a time range, and its limit or request; with Prometheus, also its usage over time. */
export function UsageTable({ job, reference }: TabProps) {
  const [timeRange, setTimeRange] = useState<TimeRange>('1h');
  const usage = useUsage(reference, timeRange, job.status?.phase === 'Running');
  if (usage.isPending) return <Loading label="Loading the usage" />;
  if (!usage.data) return <ProblemAlert title="The usage cannot be read" problem={usage.error} />;
  const pods = usageOf(usage.data, job);
  const hasHistory = usage.data.source === 'prometheus';
  return (
    <>
      {usage.error && <ProblemAlert title="The usage cannot be read" problem={usage.error} />}
      {usage.data.message && (
        <Alert variant="info" isInline title="Usage is missing or incomplete" component="h3">
          {usage.data.message}
        </Alert>
      )}
      {hasHistory && (
        <Toolbar aria-label="Usage" inset={{ default: 'insetNone' }}>
          <ToolbarContent>
            <ToolbarItem>
              <FormSelect aria-label="Time range" value={timeRange} onChange={(_, value) => setTimeRange(value as TimeRange)}>
                {timeRanges.map((range) => (
                  <FormSelectOption key={range} value={range} label={rangeNames[range]} />
                ))}
              </FormSelect>
            </ToolbarItem>
          </ToolbarContent>
        </Toolbar>
      )}
      {pods.length === 0 ? (
        <p>The job has no pods whose usage is known.</p>
      ) : (
        <Table aria-label="Usage by pod" variant="compact">
          <Thead>
            <Tr>
              <Th>Pod</Th>
              {resources.map(({ field, name }) => (
                <Th key={field} modifier="wrap">
                  {name}
                </Th>
              ))}
            </Tr>
          </Thead>
          <Tbody>
            {pods.map((pod) => (
              <Tr key={pod.name}>
                <Td dataLabel="Pod" modifier="breakWord">
                  {pod.role}
                  <Content component="small">{pod.name}</Content>
                </Td>
                {resources.map(({ field, name }, index) => {
                  const value = pod.values[index];
                  if (!value || Number.isNaN(value.latest)) return <Td key={field} dataLabel={name}>–</Td>;
                  const format = formats[field];
                  const more = [hasHistory && `peak ${format(value.peak)}`, value.limit !== undefined && `${value.limitName} ${format(value.limit)}`].filter((text) => typeof text === 'string');
                  return (
                    <Td key={field} dataLabel={name}>
                      {format(value.latest)}
                      {more.map((text) => (
                        <Content key={text} component="small">
                          {text}
                        </Content>
                      ))}
                    </Td>
                  );
                })}
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
      {hasHistory && <UsageCharts report={usage.data} />}
    </>
  );
}
