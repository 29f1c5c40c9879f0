// SPDX-License-Identifier: Apache-2.0

import { Card, CardBody, CardTitle, List, ListItem } from '@patternfly/react-core';
import type { Finding } from '../api/client';
import { Loading, ProblemAlert } from '../shared/states';
import { useDiagnosis, type JobRef } from './use-job';

/** DiagnosisCard shows what odh diagnose finds: why a job waits, and what to do. */
export function DiagnosisCard({ reference }: { reference: JobRef }) {
  const diagnosis = useDiagnosis(reference);
  return (
    <Card>
      <CardTitle component="h2">Diagnosis</CardTitle>
      <CardBody>
        {diagnosis.isPending && <Loading label="Loading the diagnosis" />}
        {diagnosis.error && <ProblemAlert title="The job cannot be diagnosed" problem={diagnosis.error} />}
        {diagnosis.data && (
          <>
            {diagnosis.data.explanation && <p className="tr-text">{diagnosis.data.explanation}</p>}
            <Findings findings={diagnosis.data.findings ?? []} none="Nothing prevents the job from running." />
          </>
        )}
      </CardBody>
    </Card>
  );
}

/** Findings are the results of checks, each with its remedy. */
export function Findings({ findings, none }: { findings: Finding[]; none: string }) {
  if (findings.length === 0) return <p>{none}</p>;
  return (
    <List isPlain isBordered>
      {findings.map((finding, index) => (
        <ListItem key={index}>
          <strong>
            {finding.rank}: {finding.title}
          </strong>
          {finding.object && <div>{finding.object}</div>}
          {finding.cause && <div className="tr-text">{finding.cause}</div>}
          {finding.fix && <div>To fix it: {finding.fix}</div>}
        </ListItem>
      ))}
    </List>
  );
}
