// SPDX-License-Identifier: Apache-2.0

import { Alert, Breadcrumb, BreadcrumbItem, Button, Flex, FlexItem, PageSection, Title } from '@patternfly/react-core';
import { Link, useNavigate, useParams } from 'react-router';
import type { Plural } from '../api/client';
import { clonePath } from '../jobs/actions';
import { ConfigurationTab, MetricsTab } from '../job/lazy-tabs';
import { EventsTab } from '../job/events-tab';
import { JobTabs } from '../job/job-tabs';
import { LogsTab } from '../job/logs-tab';
import { OverviewTab } from '../job/overview-tab';
import { PodsTab } from '../job/pods-tab';
import type { JobRef } from '../job/use-job';
import { Loading, ProblemAlert } from '../shared/states';
import { Status } from '../shared/status';
import { localTime } from '../shared/time';
import { DeleteRecord } from './delete-record';
import { jobOf, useRecord, type PastRecord } from './records';

const tabs = [
  { id: 'overview', name: 'Overview', Content: OverviewTab },
  { id: 'pods', name: 'Pods', Content: PodsTab },
  { id: 'logs', name: 'Logs', Content: LogsTab },
  { id: 'metrics', name: 'Metrics', Content: MetricsTab },
  { id: 'events', name: 'Events', Content: EventsTab },
  { id: 'configuration', name: 'Configuration', Content: ConfigurationTab },
];

/** PastJobPage shows the record of a finished job, with the tabs of the page of a job. */
export default function PastJobPage() {
  const { namespace = '', plural = '', uid = '' } = useParams();
  const kind = plural === 'mpijobs' ? 'MPIJob' : 'TrainJob';
  const record = useRecord({ kind, plural: plural as Plural, namespace, name: '' }, uid);
  if (record.error) return <ProblemAlert title="The record cannot be read" problem={record.error} actions={<Link to={`/history?namespace=${namespace}`}>Back to the history</Link>} />;
  if (!record.data) return <Loading label="Loading the record" />;
  return <RecordView key={uid} record={record.data} reference={{ kind, plural: plural as Plural, namespace, name: record.data.name, record: uid }} />;
}

function RecordView({ record, reference }: { record: PastRecord; reference: JobRef }) {
  const navigate = useNavigate();
  const list = `/history?namespace=${reference.namespace}`;
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Breadcrumb>
          <BreadcrumbItem render={({ className }) => <Link className={className} to={list}>History</Link>} />
          <BreadcrumbItem>{reference.namespace}</BreadcrumbItem>
          <BreadcrumbItem isActive>{reference.name}</BreadcrumbItem>
        </Breadcrumb>
        <Flex justifyContent={{ default: 'justifyContentSpaceBetween' }}>
          <Flex>
            <FlexItem>
              <Title headingLevel="h1">{reference.name}</Title>
            </FlexItem>
            <FlexItem>{reference.kind}</FlexItem>
            <FlexItem>
              <Status status={record.state} />
            </FlexItem>
          </Flex>
          <Flex role="group" aria-label="Actions">
            <FlexItem>
              <Button variant="secondary" onClick={() => void navigate(clonePath(reference))}>
                Clone
              </Button>
            </FlexItem>
            <FlexItem>
              <DeleteRecord reference={reference} onDone={() => void navigate(list)} />
            </FlexItem>
          </Flex>
        </Flex>
        <Alert variant="info" isInline isPlain title={`From the history. The job ${record.deleted ? 'was deleted before it finished' : 'finished'} at ${localTime(record.finishTime)}`} component="p" />
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Job">
        <JobTabs tabs={tabs} job={jobOf(record)} reference={reference} />
      </PageSection>
    </>
  );
}
