// SPDX-License-Identifier: Apache-2.0

import { Content, EmptyState, EmptyStateBody, FormSelect, FormSelectOption, PageSection, SearchInput, Title, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useMemo } from 'react';
import { Link, useSearchParams } from 'react-router';
import { NotAvailable } from '../job/not-available';
import { useJobs, useLive } from '../live/live-jobs';
import { useSession } from '../session/session';
import { Loading, ProblemAlert } from '../shared/states';
import { Status } from '../shared/status';
import { duration, localTime, secondsBetween } from '../shared/time';
import { matching, notKept, pathOfRecord, useRecords, type Records } from './records';

/** HistoryPage lists the finished jobs of a namespace, also those that were deleted. All choices are in the address. */
export default function HistoryPage() {
  const [query, setQuery] = useSearchParams();
  const { namespace: watched } = useLive();
  const { defaultNamespace } = useSession();
  const jobs = useJobs();
  const namespace = query.get('namespace') ?? (watched || defaultNamespace);
  const namespaces = useMemo(() => [...new Set([...[...jobs.rows.values()].map((row) => row.namespace), ...(namespace ? [namespace] : [])])].sort(), [jobs, namespace]);
  const records = useRecords(namespace);
  const set = (name: string, value: string) => {
    const next = new URLSearchParams(query);
    if (value) next.set(name, value);
    else next.delete(name);
    setQuery(next, { replace: true });
  };
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">History</Title>
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Finished jobs">
        <Toolbar aria-label="Records" inset={{ default: 'insetNone' }}>
          <ToolbarContent>
            <ToolbarItem>
              <FormSelect aria-label="Namespace" value={namespace} onChange={(_, value) => set('namespace', value)}>
                <FormSelectOption value="" label="Choose a namespace" isDisabled />
                {namespaces.map((name) => (
                  <FormSelectOption key={name} value={name} label={name} />
                ))}
              </FormSelect>
            </ToolbarItem>
            <ToolbarItem>
              <SearchInput
                aria-label="Search by name"
                placeholder="Search by name"
                value={query.get('search') ?? ''}
                onChange={(_, value) => set('search', value)}
                onClear={() => set('search', '')}
              />
            </ToolbarItem>
            <ToolbarItem>
              <FormSelect aria-label="State" value={query.get('state') ?? ''} onChange={(_, value) => set('state', value)}>
                <FormSelectOption value="" label="Any state" />
                {[...new Set(records.data?.items.map((record) => record.state))].sort().map((state) => (
                  <FormSelectOption key={state} value={state} label={state} />
                ))}
              </FormSelect>
            </ToolbarItem>
          </ToolbarContent>
        </Toolbar>
        {!namespace && <EmptyState titleText="Choose a namespace" headingLevel="h2" />}
        {namespace && records.isPending && <Loading label="Loading the history" />}
        {records.error?.code === notKept && <NotAvailable title="There is no history" problem={records.error} />}
        {records.error && records.error.code !== notKept && <ProblemAlert title="The history cannot be read" problem={records.error} />}
        {records.data && <RecordsTable records={records.data} search={query.get('search') ?? ''} state={query.get('state') ?? ''} />}
      </PageSection>
    </>
  );
}

export function RecordsTable({ records: { items, total }, search, state }: { records: Records; search: string; state: string }) {
  const shown = matching(items, search, state);
  if (items.length === 0) {
    return (
      <EmptyState titleText="No finished jobs" headingLevel="h2">
        <EmptyStateBody>A job is in the history some seconds after it has finished, also if it is deleted then.</EmptyStateBody>
      </EmptyState>
    );
  }
  return (
    <>
      <Content component="small" aria-live="polite">
        {shown.length === items.length ? `${items.length} records` : `${shown.length} of ${items.length} records`}
        {total > items.length && `; ${total - items.length} older ones are not listed`}
      </Content>
      <Table aria-label="Finished jobs" variant="compact">
        <Thead>
          <Tr>
            <Th width={20}>Name</Th>
            <Th>Kind</Th>
            <Th>State</Th>
            <Th width={20}>Reason</Th>
            <Th width={15}>Run time</Th>
            <Th width={20}>Finished</Th>
          </Tr>
        </Thead>
        <Tbody>
          {shown.map((record) => (
            <Tr key={record.uid}>
              <Td dataLabel="Name" modifier="breakWord">
                <Link to={pathOfRecord(record)}>{record.name}</Link>
              </Td>
              <Td dataLabel="Kind">{record.kind}</Td>
              <Td dataLabel="State">
                <Status status={record.state} />
                {record.deleted && ' deleted before it finished'}
              </Td>
              <Td dataLabel="Reason" modifier="breakWord">{record.failureReason}</Td>
              <Td dataLabel="Run time">{record.startTime ? duration(secondsBetween(record.startTime, record.finishTime)) : '–'}</Td>
              <Td dataLabel="Finished">{localTime(record.finishTime)}</Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
    </>
  );
}
