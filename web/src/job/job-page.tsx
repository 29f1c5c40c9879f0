// SPDX-License-Identifier: Apache-2.0

import { Breadcrumb, BreadcrumbItem, Button, Flex, FlexItem, PageSection, Title } from '@patternfly/react-core';
import { Link, useNavigate, useParams } from 'react-router';
import type { Plural } from '../api/client';
import { actions, clonePath, pathOf } from '../jobs/actions';
import { useActions } from '../jobs/use-actions';
import { useConnection, useRow } from '../live/live-jobs';
import { Loading, ProblemAlert } from '../shared/states';
import { Status } from '../shared/status';
import { hasFinished } from '../shared/statuses';
import { EventsTab } from './events-tab';
import { InHistory } from './in-history';
import { JobTabs } from './job-tabs';
import { ConfigurationTab, MetricsTab, RanksTab } from './lazy-tabs';
import { LogsTab } from './logs-tab';
import { OverviewTab } from './overview-tab';
import { PodsTab } from './pods-tab';
import { ProgressHeader } from './progress-header';
import { useJob, type JobRef } from './use-job';

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
  const navigate = useNavigate();
  const job = useJob(reference);
  const row = useRow(reference);
  const connection = useConnection();
  const { start, dialogs } = useActions(([after]) => {
    if (!after) void navigate('/jobs');
    else if (after.name !== reference.name) void navigate(pathOf(after));
  });
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
        {hasFinished(status) && <InHistory reference={reference} nameOrUID={job.data?.metadata.uid} />}
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Job">
        {problem && (
          <ProblemAlert
            title={problem.code === 404 ? `Job ${reference.name} not found` : 'The job cannot be read'}
            problem={problem}
            actions={<Link to="/jobs">Back to all jobs</Link>}
          />
        )}
        {job.error?.code === 404 && <InHistory reference={reference} nameOrUID={reference.name} />}
        {job.isPending && <Loading label="Loading the job" />}
        {job.data && <JobTabs tabs={tabs} job={job.data} reference={reference} />}
      </PageSection>
      {dialogs}
    </>
  );
}
