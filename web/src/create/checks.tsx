// SPDX-License-Identifier: Apache-2.0

import { Alert, Spinner } from '@patternfly/react-core';
import { Findings } from '../job/findings';
import { ProblemAlert } from '../shared/states';
import type { Submit } from './use-submit';

/** Checks shows the result of the server's dry run and of preflight. */
export function Checks({ submit }: { submit: Submit }) {
  if (submit.isBusy) return <Spinner size="md" aria-label="The server checks the job" />;
  if (submit.problem) return <ProblemAlert title="The server does not accept the job" problem={submit.problem} />;
  if (!submit.report) return null;
  const findings = (submit.report.checks ?? []).flatMap((outcome) => outcome.findings ?? []);
  const isFit = submit.report.passed === submit.report.total;
  return (
    <Alert
      variant={isFit ? 'success' : 'warning'}
      isInline
      component="h2"
      title={`The job is valid; ${submit.report.passed} of ${submit.report.total} checks of whether it can run have passed`}
    >
      {findings.length > 0 && <Findings findings={findings} none="" />}
    </Alert>
  );
}
