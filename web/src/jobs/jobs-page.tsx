// SPDX-License-Identifier: Apache-2.0

import { Button, Content, EmptyState, EmptyStateActions, EmptyStateBody, EmptyStateFooter, Flex, FlexItem, PageSection, Title } from '@patternfly/react-core';
import CubesIcon from '@patternfly/react-icons/dist/esm/icons/cubes-icon';
import SearchIcon from '@patternfly/react-icons/dist/esm/icons/search-icon';
import { useCallback, useMemo, useState } from 'react';
import { Link, useNavigate, useSearchParams } from 'react-router';
import { isSynced, keyOf } from '../live/events';
import { useConnection, useJobs, useLive } from '../live/live-jobs';
import { Loading } from '../shared/states';
import { AllNamespaces } from './all-namespaces';
import { addressOf, filtersOf, hasFilters, selected, type Filters } from './filters';
import { JobsTable } from './jobs-table';
import { JobsToolbar } from './jobs-toolbar';
import { Refused } from './refused';
import { useActions } from './use-actions';

/** JobsPage lists the jobs of both kinds, live. */
export function JobsPage() {
  const [query, setQuery] = useSearchParams();
  const filters = useMemo(() => filtersOf(query), [query]);
  const setFilters = (next: Filters) => setQuery(addressOf(next), { replace: true });
  // Not deferred: while jobs change all the time, a deferred list might never be rendered on a busy machine.
  const jobs = useJobs();
  const connection = useConnection();
  const { namespace: watched } = useLive();
  const navigate = useNavigate();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => selected(jobs.rows.values(), filters), [jobs, filters]);
  const namespaces = useMemo(() => [...new Set([...jobs.rows.values()].map((row) => row.namespace))].sort(), [jobs]);
  const unchoose = useCallback(() => setChosen(new Set()), []);
  const { start, dialogs } = useActions(unchoose);
  const chosenRows = rows.filter((row) => chosen.has(keyOf(row)));

  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Flex justifyContent={{ default: 'justifyContentSpaceBetween' }}>
          <FlexItem>
            <Title headingLevel="h1">Training jobs</Title>
          </FlexItem>
          <FlexItem>
            <Button variant="primary" component={(props) => <Link {...props} to="/create" />}>
              Create job
            </Button>
          </FlexItem>
        </Flex>
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Jobs">
        {watched && connection.state !== 'refused' && (
          <Flex>
            <FlexItem>Only the jobs of namespace {watched}</FlexItem>
            <FlexItem>
              <AllNamespaces />
            </FlexItem>
          </Flex>
        )}
        {connection.state === 'refused' && <Refused problem={connection.problem} />}
        {connection.state !== 'refused' && !isSynced(jobs) && <Loading label="Loading jobs" />}
        {connection.state !== 'refused' && isSynced(jobs) && jobs.rows.size === 0 && (
          <EmptyState titleText="No training jobs found" headingLevel="h2" icon={CubesIcon}>
            <EmptyStateBody>{watched ? `Namespace ${watched} has no jobs.` : 'You see the jobs of all namespaces in which you may watch jobs.'}</EmptyStateBody>
            <EmptyStateFooter>
              <EmptyStateActions>
                <Button variant="primary" onClick={() => void navigate('/create')}>
                  Create a training job
                </Button>
              </EmptyStateActions>
            </EmptyStateFooter>
          </EmptyState>
        )}
        {isSynced(jobs) && jobs.rows.size > 0 && (
          <>
            <JobsToolbar filters={filters} onFilters={setFilters} namespaces={namespaces} chosen={chosenRows} onAction={start} />
            <Content component="small" aria-live="polite">
              {rows.length === jobs.rows.size ? `${rows.length} jobs` : `${rows.length} of ${jobs.rows.size} jobs`}
            </Content>
            {rows.length > 0 ? (
              <JobsTable rows={rows} filters={filters} onFilters={setFilters} chosen={chosen} onChosen={setChosen} onAction={start} />
            ) : (
              <EmptyState titleText="No jobs match the filters" headingLevel="h2" icon={SearchIcon}>
                <EmptyStateFooter>
                  <Button variant="link" onClick={() => setFilters({ ...filters, ...{ search: '', namespace: '', status: '', kind: '' } })} isDisabled={!hasFilters(filters)}>
                    Clear all filters
                  </Button>
                </EmptyStateFooter>
              </EmptyState>
            )}
          </>
        )}
      </PageSection>
      {dialogs}
    </>
  );
}

