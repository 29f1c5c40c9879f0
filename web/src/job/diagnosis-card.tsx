// SPDX-License-Identifier: Apache-2.0

import { Card, CardBody, CardTitle } from '@patternfly/react-core';
import type { Job } from '../api/client';
import { Loading, ProblemAlert } from '../shared/states';
import { rootCause } from './failure';
import { Findings } from './findings';
import { useDiagnosis, type JobRef } from './use-job';
import { WaitingCard } from './waiting-card';

/** DiagnosisCard shows what odh diagnose finds: why a job waits, and what to do. The cause of a failure has a card of its own. */
export function DiagnosisCard({ job, reference, hasFailed }: { job: Job; reference: JobRef; hasFailed: boolean }) {
  const diagnosis = useDiagnosis(reference);
  const { findings = [], waiting, explanation } = diagnosis.data ?? {};
  if (waiting) return <WaitingCard waiting={waiting} findings={findings} job={job} />;
  const others = hasFailed ? findings.filter((finding) => finding !== rootCause(diagnosis.data ?? undefined)) : findings;
  if (hasFailed && diagnosis.data && others.length === 0) return null;
  return (
    <Card>
      <CardTitle component="h2">{hasFailed ? 'Other findings' : 'Diagnosis'}</CardTitle>
      <CardBody>
        {diagnosis.isPending && <Loading label="Loading the diagnosis" />}
        {diagnosis.error && <ProblemAlert title="The job cannot be diagnosed" problem={diagnosis.error} />}
        {diagnosis.data && (
          <>
            {explanation && !hasFailed && <p className="tr-text">{explanation}</p>}
            <Findings findings={others} none="Nothing prevents the job from running." />
          </>
        )}
      </CardBody>
    </Card>
  );
}
