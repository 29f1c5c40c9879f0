// SPDX-License-Identifier: Apache-2.0

import { Card, CardBody, CardTitle } from '@patternfly/react-core';
import { Fragment } from 'react';
import type { JobStatus } from '../api/client';
import { duration } from '../shared/time';
import { slowestOf, stepsOf } from './timeline';

/** StartCard shows how long each step of a job took, and names the slowest of the start. */
export function StartCard({ status }: { status: JobStatus }) {
  const steps = stepsOf(status.timeline);
  const slowest = slowestOf(steps);
  const total = Math.max(1, ...steps.map((step) => step.start + step.seconds));
  return (
    <Card>
      <CardTitle component="h2">Timeline</CardTitle>
      <CardBody>
        {steps.length === 0 && <p>The job has not reached a step yet.</p>}
        <div className="tr-steps">
          {steps.map((step) => (
            <Fragment key={step.name}>
              <span>{step.name}</span>
              <span className="tr-steps__track" aria-hidden>
                <span
                  className={`tr-steps__bar${step === slowest ? ' tr-steps__bar--slowest' : ''}`}
                  style={{ insetInlineStart: `${(step.start / total) * 100}%`, width: `${(step.seconds / total) * 100}%` }}
                />
              </span>
              <span>{duration(step.seconds)}</span>
            </Fragment>
          ))}
        </div>
        {slowest && <p>Slowest step of the start: {slowest.name} ({duration(slowest.seconds)})</p>}
      </CardBody>
    </Card>
  );
}
