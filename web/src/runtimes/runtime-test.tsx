// SPDX-License-Identifier: Apache-2.0

import { ActionGroup, Alert, Button, Content, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, ProgressStep, ProgressStepper, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import type { Schemas } from '../api/client';
import { useSession } from '../session/session';
import { ProblemAlert } from '../shared/states';
import { imageOf, type RuntimeObject } from './runtime-document';
import { kindOf, type RuntimeRef } from './runtime-ref';
import { useStartTest, useTestReport } from './use-runtime';

/** RuntimeTest runs a small job with a runtime, and shows how far it comes. */
export function RuntimeTest({ runtime, reference }: { runtime: RuntimeObject; reference: RuntimeRef }) {
  const { defaultNamespace } = useSession();
  const [query, setQuery] = useSearchParams();
  const [values, setValues] = useState({ namespace: reference.namespace || defaultNamespace || 'default', image: '', cpu: '', memory: '' });
  const start = useStartTest(values.namespace);
  const ownImage = imageOf(runtime);
  // The test is in the address, so that a reload does not lose it.
  const [namespace = '', name = ''] = (query.get('job') ?? '').split('/');
  const begin = () =>
    start.mutate(
      { kind: kindOf(reference), runtime: reference.name, image: values.image || undefined, cpu: values.cpu || undefined, memory: values.memory || undefined },
      { onSuccess: (report) => setQuery({ tab: 'test', job: `${report.namespace}/${report.job}` }, { replace: true }) },
    );
  const field = (key: keyof typeof values, label: string, help: string, more: { isRequired?: boolean; isDisabled?: boolean } = {}) => (
    <FormGroup label={label} fieldId={`test-${key}`} isRequired={more.isRequired}>
      <TextInput id={`test-${key}`} value={values[key]} onChange={(_, value) => setValues({ ...values, [key]: value })} aria-describedby={`test-${key}-help`} {...more} />
      <FormHelperText>
        <HelperText id={`test-${key}-help`}>
          <HelperTextItem>{help}</HelperTextItem>
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
  return (
    <div className="tr-stack">
      <Content>A test creates a TrainJob with a launcher and two workers, in which every rank prints a line. The job is deleted ten minutes after it has finished.</Content>
      {start.error && <ProblemAlert title="The test cannot be started" problem={start.error} />}
      <div className="tr-columns tr-columns--narrow">
        <Form
          onSubmit={(event) => {
            event.preventDefault();
            begin();
          }}
        >
          {field('namespace', 'Namespace', 'Namespace in which the job runs', { isRequired: true, isDisabled: Boolean(reference.namespace) })}
          {field('image', 'Container image', ownImage ? `Default: ${ownImage}` : 'The runtime has no image', { isRequired: !ownImage })}
          {field('cpu', 'CPU per pod', 'Such as 100m. Default: the resources of the runtime')}
          {field('memory', 'Memory per pod', 'Such as 128Mi. Default: the resources of the runtime')}
          <ActionGroup>
            <Button type="submit" variant="primary" isLoading={start.isPending} isDisabled={start.isPending || !values.namespace || !(values.image || ownImage)}>
              Test runtime
            </Button>
          </ActionGroup>
        </Form>
        {name && <Trial key={name} namespace={namespace} name={name} />}
      </div>
    </div>
  );
}

function Trial({ namespace, name }: { namespace: string; name: string }) {
  const report = useTestReport(namespace, name);
  if (report.error) return <ProblemAlert title="The test cannot be followed" problem={report.error} />;
  if (!report.data) return null;
  const { steps, finished, works, image } = report.data;
  return (
    <section className="tr-stack" aria-label="Steps of the test">
      <Content>
        <Link to={`/jobs/${namespace}/trainjobs/${name}`}>{name}</Link> in namespace {namespace}, image {image}
      </Content>
      <div aria-live="polite">
        {finished && <Alert variant={works ? 'success' : 'danger'} isInline component="h2" title={works ? 'The runtime works' : 'The runtime does not work'} />}
      </div>
      <ProgressStepper isVertical aria-label="Steps">
        {steps.map((step, index) => (
          <Step key={index} step={step} isCurrent={!finished && step.result === 'not reached' && steps[index - 1]?.result === 'ok'} />
        ))}
      </ProgressStepper>
    </section>
  );
}

const looks = { ok: ['success', 'Done'], fail: ['danger', 'Failed'], 'not known': ['warning', 'Not known'], 'not reached': ['pending', 'Not reached'] } as const;

function Step({ step, isCurrent }: { step: Schemas['TrialStep']; isCurrent: boolean }) {
  const [variant, word] = isCurrent ? (['info', 'In progress'] as const) : looks[step.result as keyof typeof looks];
  const title = step.step.charAt(0).toUpperCase() + step.step.slice(1);
  return (
    <ProgressStep id={`step-${title}`} titleId={`step-title-${title}`} variant={variant} isCurrent={isCurrent} aria-label={`${title}: ${word}`} description={step.message || (step.after ? `after ${step.after}` : undefined)}>
      {title}
    </ProgressStep>
  );
}
