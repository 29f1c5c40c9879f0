// SPDX-License-Identifier: Apache-2.0

import { Alert } from '@patternfly/react-core';
import { Link } from 'react-router';
import { pathOfRecord, useRecord } from '../history/records';
import type { JobRef } from './use-job';

/** InHistory leads to the record of a job, which has its log after the pods are deleted. It shows nothing if there is none. */
export function InHistory({ reference, nameOrUID }: { reference: JobRef; nameOrUID: string | undefined }) {
  const { data } = useRecord(reference, nameOrUID);
  if (!data) return null;
  return (
    <Alert variant="info" isInline isPlain component="p" title="The history has a record of this job, with its log">
      <Link to={pathOfRecord(data)}>Show the record</Link>
    </Alert>
  );
}
