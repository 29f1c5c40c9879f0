// SPDX-License-Identifier: Apache-2.0

import { Alert, Card, CardBody, CardTitle, DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm, ExpandableSection, Progress, ProgressMeasureLocation } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import type { ReactNode } from 'react';
import type { Diagnosis, Job, Schemas } from '../api/client';
import { ProblemAlert } from '../shared/states';
import { duration, localTime, secondsBetween, useNow } from '../shared/time';
import { Findings } from './findings';
import { quotaRows } from './quota';
import { useQuota } from './use-job';

type Waiting = Schemas['Waiting'];

/** What a job waits for, by the causes of the API. */
const causes = new Map([
  ['Operator', 'the operator'],
  ['Suspended', 'a user to resume it'],
  ['Blocked', 'something that is missing'],
  ['QueueUnmanaged', 'a queue that Kueue does not manage'],
  ['QueueMissing', 'a queue that does not exist'],
  ['QueueInactive', 'a queue that admits no jobs'],
  ['Deactivated', 'its Workload, which is deactivated'],
  ['Preempted', 'quota, which another job has preempted'],
  ['Evicted', 'quota, from which it was evicted'],
  ['Queue', 'its position in the queue'],
  ['Quota', 'quota of the namespace'],
  ['Restart', 'its restart'],
  ['VolumeMissing', 'a volume that does not exist'],
  ['Volume', 'a volume'],
  ['SchedulingGates', 'scheduling gates'],
  ['Nodes', 'nodes for its pods'],
  ['ImageFailing', 'an image that cannot be pulled'],
  ['Container', 'a container that does not start'],
  ['Image', 'an image'],
  ['Initializer', 'its dataset and model'],
  ['Workers', 'its workers'],
  ['Gate', 'connections to its workers'],
]);

/** WaitingCard answers why a job does not run yet: what must happen first, and what to do for it. */
export function WaitingCard({ waiting, findings, job }: { waiting: Waiting; findings: Diagnosis['findings']; job: Job }) {
  const cause = causes.get(waiting.cause);
  return (
    <Card>
      <CardTitle component="h2">{cause ? `Waiting for ${cause}` : 'Why it waits'}</CardTitle>
      <CardBody className="tr-stack">
        <p>{waiting.message}</p>
        {waiting.remedy && (
          <Alert variant="info" isInline title="What to do" component="h3">
            <span className="tr-text">{waiting.remedy}</span>
          </Alert>
        )}
        <Facts waiting={waiting} />
        {waiting.gang && waiting.gang.pods > 0 && (
          <Progress
            title="Pods scheduled"
            value={(100 * waiting.gang.scheduled) / waiting.gang.pods}
            label={`${waiting.gang.scheduled} of ${waiting.gang.pods}`}
            valueText={`${waiting.gang.scheduled} of ${waiting.gang.pods} pods are scheduled`}
            measureLocation={ProgressMeasureLocation.outside}
          />
        )}
        {waiting.cause === 'Quota' && <QuotaTable job={job} object={waiting.object} />}
        {findings.length > 0 && (
          <ExpandableSection toggleText={`All findings (${findings.length})`}>
            <Findings findings={findings} none="" />
          </ExpandableSection>
        )}
      </CardBody>
    </Card>
  );
}

function Facts({ waiting: { object, image, since, mayStart, queue, gang } }: { waiting: Waiting }) {
  const now = useNow();
  const left = mayStart ? -secondsBetween(mayStart, now) : 0;
  const facts: [string, ReactNode][] = [
    ['Object', object],
    ['Image', image],
    ['Since', since && `${localTime(since)}, for ${duration(secondsBetween(since, now))}`],
    ['May start', mayStart && `${localTime(mayStart)} at the earliest${left > 0 ? `, in ${duration(left)}` : ''}`],
    ['Queue', queue && (queue.clusterQueue ? `${queue.name}, of the ClusterQueue ${queue.clusterQueue}` : queue.name)],
    ['Position', queue?.position && (queue.length ? `${queue.position} of ${queue.length}` : queue.position)],
    ['Before this job', queue?.ahead?.join(', ')],
    ['Have quota', queue?.admitted?.join(', ')],
    ['Missing quota', queue?.lacks],
    ['Pod without a node', gang?.pod],
    ['Nodes lack', gang?.lacks],
  ];
  return (
    <DescriptionList isCompact isHorizontal aria-label="What the job waits for">
      {facts
        .filter(([, value]) => value)
        .map(([term, value]) => (
          <DescriptionListGroup key={term}>
            <DescriptionListTerm>{term}</DescriptionListTerm>
            <DescriptionListDescription>{value}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
    </DescriptionList>
  );
}

/** QuotaTable has what of a ResourceQuota is used and free, and what the job needs of it. */
function QuotaTable({ job, object }: { job: Job; object: string | undefined }) {
  const quota = useQuota(job.metadata.namespace);
  if (quota.error) return <ProblemAlert title="The quota cannot be read" problem={quota.error} />;
  const rows = quotaRows(quota.data?.quotas ?? [], job, object);
  if (rows.length === 0) return null;
  return (
    <Table aria-label="Quota" variant="compact">
      <Thead>
        <Tr>
          <Th>ResourceQuota</Th>
          <Th>Resource</Th>
          <Th>Used</Th>
          <Th>Limit</Th>
          <Th>Free</Th>
          <Th>Workers need</Th>
        </Tr>
      </Thead>
      <Tbody>
        {rows.map((row) => (
          <Tr key={`${row.quota}/${row.resource}`}>
            <Td dataLabel="ResourceQuota">{row.quota}</Td>
            <Td dataLabel="Resource">{row.resource}</Td>
            <Td dataLabel="Used">{row.used}</Td>
            <Td dataLabel="Limit">{row.hard}</Td>
            <Td dataLabel="Free">{row.free}</Td>
            <Td dataLabel="Workers need">{row.demand || '–'}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
