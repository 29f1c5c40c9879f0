// SPDX-License-Identifier: Apache-2.0

import { Button, EmptyState, FormSelect, FormSelectOption, PageSection, Title, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useMemo } from 'react';
import { Link, useSearchParams } from 'react-router';
import { useJobs } from '../live/live-jobs';
import { Loading, ProblemAlert } from '../shared/states';
import { pathOf } from './runtime-ref';
import { useRuntimes } from './use-runtimes';

/** RuntimesPage lists the runtimes of the cluster and, if one is chosen, of a namespace. */
export function RuntimesPage() {
  const [query, setQuery] = useSearchParams();
  const namespace = query.get('namespace') ?? '';
  const runtimes = useRuntimes(namespace);
  const jobs = useJobs();
  const namespaces = useMemo(() => [...new Set([...[...jobs.rows.values()].map((row) => row.namespace), ...(namespace ? [namespace] : [])])].sort(), [jobs, namespace]);
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">Training runtimes</Title>
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Runtimes">
        <Toolbar aria-label="Namespace of the runtimes" inset={{ default: 'insetNone' }}>
          <ToolbarContent>
            <ToolbarItem>
              <FormSelect aria-label="Namespace" value={namespace} onChange={(_, value) => setQuery(value ? { namespace: value } : {}, { replace: true })}>
                <FormSelectOption value="" label="Only those of the cluster" />
                {namespaces.map((name) => (
                  <FormSelectOption key={name} value={name} label={`Also those of ${name}`} />
                ))}
              </FormSelect>
            </ToolbarItem>
            <ToolbarItem align={{ default: 'alignEnd' }}>
              <Button variant="primary" component={(props) => <Link {...props} to={`/runtimes/new?namespace=${namespace}`} />}>
                Create runtime
              </Button>
            </ToolbarItem>
          </ToolbarContent>
        </Toolbar>
        {runtimes.isPending && <Loading label="Loading runtimes" />}
        {runtimes.error && <ProblemAlert title="The runtimes cannot be listed" problem={runtimes.error} />}
        {runtimes.data?.length === 0 && <EmptyState titleText="No runtimes found" headingLevel="h2" />}
        {runtimes.data && runtimes.data.length > 0 && (
          <Table aria-label="Runtimes" variant="compact">
            <Thead>
              <Tr>
                <Th>Name</Th>
                <Th>Scope</Th>
                <Th>Framework</Th>
                <Th>MPI</Th>
                <Th>Nodes</Th>
                <Th screenReaderText="Actions" />
              </Tr>
            </Thead>
            <Tbody>
              {runtimes.data.map((runtime) => (
                <Tr key={`${runtime.kind}/${runtime.name}`}>
                  <Td dataLabel="Name">
                    <Link to={pathOf({ namespace: runtime.namespace ?? '', name: runtime.name })}>{runtime.name}</Link>
                  </Td>
                  <Td dataLabel="Scope">{runtime.namespace ? `Namespace ${runtime.namespace}` : 'Cluster'}</Td>
                  <Td dataLabel="Framework">{runtime.framework}</Td>
                  <Td dataLabel="MPI">{runtime.mpiImplementation ?? '–'}</Td>
                  <Td dataLabel="Nodes">{runtime.numNodes}</Td>
                  <Td modifier="fitContent">
                    <Link to={`/create?runtime=${runtime.kind}/${runtime.name}${runtime.namespace ? `&namespace=${runtime.namespace}` : ''}`}>Create a job</Link>
                  </Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
      </PageSection>
    </>
  );
}
