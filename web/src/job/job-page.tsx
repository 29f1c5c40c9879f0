// SPDX-License-Identifier: Apache-2.0

import { Breadcrumb, BreadcrumbItem, Button, Flex, FlexItem, PageSection, Tab, Tabs, TabTitleText, Title } from '@patternfly/react-core';
import { lazy, Suspense } from 'react';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router';
import type { Job, Plural } from '../api/client';
import { actions, clonePath, pathOf } from '../jobs/actions';
import { useActions } from '../jobs/use-actions';
import { useConnection, useRow } from '../live/live-jobs';
import { Loading, ProblemAlert } from '../shared/states';
import { Status } from '../shared/status';
import { EventsTab } from './events-tab';
import { LogsTab } from './logs-tab';
import { OverviewTab } from './overview-tab';
import { PodsTab } from './pods-tab';
import { ProgressHeader } from './progress-header';
import { useJob, type JobRef } from './use-job';

const RanksTab = lazy(() => import('./ranks-tab'));
const MetricsTab = lazy(() => import('./metrics-tab'));
const ConfigurationTab = lazy(() => import('./configuration-tab'));

export interface TabProps {
  job: Job;
  reference: JobRef;
}

const tabs = [
  { id: 'overview', name: 'Overview', Content: OverviewTab },
  { id: 'pods', name: 'Pods', Content: PodsTab },
  { id: 'ranks', name: 'Ranks', Content: RanksTab },
  { id: 'logs', name: 'Logs', Content: LogsTab },
  { id: 'metrics', name: 'Metrics', Content: MetricsTab },
  { id: 'events', name: 'Events', Content: EventsTab },
  { id: 'configuration', name: 'Configuration', Content: ConfigurationTab },
];

/** JobPage shows one job; the tab is in the address. */
export function JobPage() {
  const { namespace = '', plural = '', name = '' } = useParams();
  const reference: JobRef = { namespace, name, plural: plural as Plural, kind: plural === 'mpijobs' ? 'MPIJob' : 'TrainJob' };
  return <JobView key={`${plural}/${namespace}/${name}`} reference={reference} />;
}

function JobView({ reference }: { reference: JobRef }) {
  const [query, setQuery] = useSearchParams();
  const navigate = useNavigate();
  const job = useJob(reference);
  const row = useRow(reference);
  const connection = useConnection();
  const { start, dialogs } = useActions(([after]) => {
    if (!after) void navigate('/jobs');
    else if (after.name !== reference.name) void navigate(pathOf(after));
  });
  const chosen = query.get('tab') ?? 'overview';
  const status = row?.status ?? job.data?.status?.phase ?? '';
  const target = { ...reference, status };
  // While the connection is lost, a banner says so, and the page shows what it has.
  const problem = job.data && connection.state === 'lost' ? undefined : job.error;

  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Breadcrumb>
          <BreadcrumbItem render={({ className }) => <Link className={className} to="/jobs">Jobs</Link>} />
          <BreadcrumbItem>{reference.namespace}</BreadcrumbItem>
          <BreadcrumbItem isActive>{reference.name}</BreadcrumbItem>
        </Breadcrumb>
        <Flex justifyContent={{ default: 'justifyContentSpaceBetween' }}>
          <Flex>
            <FlexItem>
              <Title headingLevel="h1">{reference.name}</Title>
            </FlexItem>
            <FlexItem>{reference.kind}</FlexItem>
            {status && <FlexItem aria-live="polite"><Status status={status} /></FlexItem>}
          </Flex>
          {job.data && (
            <Flex role="group" aria-label="Actions">
              {actions.map((action) => (
                <FlexItem key={action.id}>
                  <Button variant={action.id === 'delete' ? 'danger' : 'secondary'} isDisabled={!action.fits(target)} onClick={() => start(action, [target])}>
                    {action.name}
                  </Button>
                </FlexItem>
              ))}
              <FlexItem>
                <Button variant="secondary" onClick={() => void navigate(clonePath(reference))}>
                  Clone
                </Button>
              </FlexItem>
            </Flex>
          )}
        </Flex>
        {job.data && <ProgressHeader job={job.data} />}
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Job">
        {problem && (
          <ProblemAlert
            title={problem.code === 404 ? `Job ${reference.name} not found` : 'The job cannot be read'}
            problem={problem}
            actions={<Link to="/jobs">Back to all jobs</Link>}
          />
        )}
        {job.isPending && <Loading label="Loading the job" />}
        {job.data && (
          <Tabs activeKey={chosen} onSelect={(_, id) => setQuery(id === 'overview' ? {} : { tab: String(id) }, { replace: true })} mountOnEnter unmountOnExit aria-label="Parts of the job" role="region">
            {tabs.map(({ id, name, Content }) => (
              <Tab key={id} eventKey={id} title={<TabTitleText>{name}</TabTitleText>}>
                <PageSection hasBodyWrapper={false} padding={{ default: 'noPadding' }} style={{ paddingBlockStart: '1rem' }}>
                  <Suspense fallback={<Loading label={`Loading ${name}`} />}>
                    <Content job={job.data} reference={reference} />
                  </Suspense>
                </PageSection>
              </Tab>
            ))}
          </Tabs>
        )}
      </PageSection>
      {dialogs}
    </>
  );
}
