// SPDX-License-Identifier: Apache-2.0

import { Alert, Card, CardBody, CardTitle, DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm } from '@patternfly/react-core';
import { Link } from 'react-router';
import type { JobStatus } from '../api/client';

/** FailureCard names the root cause of a failure, and shows what the program wrote last. */
export function FailureCard({ status }: { status: JobStatus }) {
  const process = status.failedProcess;
  const facts: [string, string | number | undefined][] = [
    ['Reason', status.failureReason],
    ['Cause', status.failureCause],
    ['Rank', process?.rank],
    ['Host', process?.host],
    ['Exit code', process?.exitCode],
    ['Signal', process?.signal],
    ['Restarts', status.restart?.count],
  ];
  return (
    <Card>
      <CardTitle component="h2">Why it failed</CardTitle>
      <CardBody>
        <Alert variant="danger" isInline isPlain title={status.failureMessage || status.failureReason} component="p" />
        <DescriptionList isCompact isHorizontal>
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
          <>
            <h3>Last lines of the program</h3>
            <pre className="tr-text" tabIndex={0} aria-label="Last lines of the program">
              {process.lastLines.join('\n')}
            </pre>
            <Link to={{ search: `tab=logs&search=${encodeURIComponent(process.error || process.lastLines.at(-1) || '')}` }}>Show them in the log</Link>
          </>
        )}
      </CardBody>
    </Card>
  );
}
