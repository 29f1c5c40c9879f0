// SPDX-License-Identifier: Apache-2.0

import { Alert, Card, CardBody, CardTitle, DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm } from '@patternfly/react-core';
import { Link } from 'react-router';
import type { JobStatus } from '../api/client';
import { failedPod, logOf, rootCause } from './failure';
import { printable } from './log-buffer';
import { useDiagnosis, type JobRef } from './use-job';

/** FailureCard names the root cause of a failure and what to do, and shows what the program wrote last. */
export function FailureCard({ status, reference }: { status: JobStatus; reference: JobRef }) {
  const diagnosis = useDiagnosis(reference);
  return <Failure status={status} remedy={rootCause(diagnosis.data ?? undefined)?.fix} />;
}

export function Failure({ status, remedy }: { status: JobStatus; remedy: string | undefined }) {
  const process = status.failedProcess;
  const pod = failedPod(status);
  const log = logOf(status, pod);
  const facts: [string, string | number | undefined][] = [
    ['Reason', status.failureReason],
    ['Cause', status.failureCause],
    ['Pod', pod && `${pod.name ?? ''} (${pod.role.toLowerCase()})`],
    ['Node', pod?.node],
    ['Rank', process?.rank],
    ['Host', process?.host],
    ['Exit code', process?.exitCode],
    ['Signal', process?.signal],
    ['Restarts', status.restart?.count],
  ];
  return (
    <Card>
      <CardTitle component="h2">Why it failed</CardTitle>
      <CardBody className="tr-stack">
        <Alert variant="danger" isInline isPlain title={status.failureMessage || status.failureReason} component="p" />
        {remedy && (
          <Alert variant="info" isInline title="What to do" component="h3">
            <span className="tr-text">{remedy}</span>
          </Alert>
        )}
        <DescriptionList isCompact isHorizontal aria-label="Failure">
          {facts
            .filter(([, value]) => value !== undefined && value !== '')
            .map(([term, value]) => (
              <DescriptionListGroup key={term}>
                <DescriptionListTerm>{term}</DescriptionListTerm>
                <DescriptionListDescription>{value}</DescriptionListDescription>
              </DescriptionListGroup>
            ))}
        </DescriptionList>
        {process?.lastLines && process.lastLines.length > 0 && (
          <div>
            <h3>Last lines of the program</h3>
            <pre className="tr-text" tabIndex={0} aria-label="Last lines of the program">
              {process.lastLines.map(printable).join('\n')}
            </pre>
          </div>
        )}
        <Link to={{ search: log.search }}>{log.text}</Link>
      </CardBody>
    </Card>
  );
}
