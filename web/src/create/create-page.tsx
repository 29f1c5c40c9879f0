// SPDX-License-Identifier: Apache-2.0

import { ActionGroup, Alert, Button, Content, Form, PageSection, Tab, Tabs, TabTitleText, Title } from '@patternfly/react-core';
import { useState } from 'react';
import { useNavigate, useSearchParams } from 'react-router';
import type { Plural } from '../api/client';
import { useJob, type JobRef } from '../job/use-job';
import { useSession } from '../session/session';
import { Loading, ProblemAlert } from '../shared/states';
import { Checks } from './checks';
import { CopyAs } from './copy-as';
import { cloned, initial, kindOf, syntaxError, withRuntime } from './document';
import { draftOf, keepDraft, removeDraft } from './draft';
import { JobForm } from './job-form';
import { useSubmit } from './use-submit';
import { YAMLEditor } from './yaml-editor';

/** CreatePage creates a job: new, or a copy of another one. */
export default function CreatePage() {
  const [query] = useSearchParams();
  const { defaultNamespace } = useSession();
  const origin = query.toString();
  const clone = query.get('clone');
  if (clone) {
    const [namespace = '', plural = '', name = ''] = clone.split('/');
    const record = query.get('record') ?? undefined;
    return <Copy key={origin} origin={origin} reference={{ namespace, name, plural: plural as Plural, kind: plural === 'mpijobs' ? 'MPIJob' : 'TrainJob', record }} />;
  }
  const empty = initial(query.get('namespace') || defaultNamespace || 'default');
  const runtime = query.get('runtime');
  return <Editor key={origin} origin={origin} fresh={runtime ? withRuntime(empty, runtime) : empty} />;
}

function Copy({ origin, reference }: { origin: string; reference: JobRef }) {
  const job = useJob(reference);
  // What is being edited does not depend on the job any more.
  if (job.data) return <Editor origin={origin} fresh={cloned(job.data)} />;
  if (job.error && draftOf(origin)) return <Editor origin={origin} fresh={initial(reference.namespace)} />;
  if (job.error) return <ProblemAlert title="The job to copy cannot be read" problem={job.error} />;
  return <Loading label="Loading the job to copy" />;
}

const viewOf = (text: string) => (kindOf(text) === 'TrainJob' ? 'form' : 'yaml');

/** Editor edits the draft of its origin, or else a fresh document. */
function Editor({ origin, fresh }: { origin: string; fresh: string }) {
  const [draft, setDraft] = useState(() => draftOf(origin));
  const [text, setText] = useState(draft || fresh);
  const [view, setView] = useState<'form' | 'yaml'>(() => viewOf(text));
  const navigate = useNavigate();
  const submit = useSubmit();
  const wrong = syntaxError(text);
  const change = (next: string) => {
    setText(next);
    keepDraft({ origin, text: next });
    submit.reset();
  };
  const create = async () => {
    const path = await submit.create(text);
    if (!path) return;
    removeDraft();
    void navigate(path);
  };
  const startOver = () => {
    removeDraft();
    setDraft('');
    setText(fresh);
    setView(viewOf(fresh));
    submit.reset();
  };

  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">Create a training job</Title>
        <Content>Form and YAML are the same document: use either.</Content>
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Job">
        {draft && text === draft && (
          <Alert
            variant="info"
            isInline
            component="h2"
            title="This is the draft that you have not submitted"
            actionLinks={
              <Button variant="link" isInline onClick={startOver}>
                Start over
              </Button>
            }
          />
        )}
        <Tabs activeKey={view} onSelect={(_, key) => setView(key as 'form' | 'yaml')} mountOnEnter unmountOnExit aria-label="Form or YAML" role="region">
          <Tab eventKey="form" title={<TabTitleText>Form</TabTitleText>} isDisabled={kindOf(text) !== 'TrainJob'}>
            {wrong ? <Alert variant="warning" isInline title="The form cannot show this document. Correct the YAML first" component="h2">{wrong}</Alert> : <JobForm text={text} onChange={change} details={submit.problem?.details ?? []} />}
          </Tab>
          <Tab eventKey="yaml" title={<TabTitleText>YAML</TabTitleText>}>
            {wrong && <Alert variant="danger" isInline title="The YAML is not valid" component="h2">{wrong}</Alert>}
            <YAMLEditor label="YAML of the job" value={text} onChange={change} />
          </Tab>
        </Tabs>
        <div aria-live="polite">
          <Checks submit={submit} />
        </div>
        <Form onSubmit={(event) => event.preventDefault()}>
          <ActionGroup>
            <Button variant="primary" onClick={() => void create()} isDisabled={Boolean(wrong) || submit.isBusy}>
              Create
            </Button>
            <Button variant="secondary" onClick={() => void submit.check(text)} isDisabled={Boolean(wrong) || submit.isBusy}>
              Check
            </Button>
            <Button variant="link" onClick={() => void navigate('/jobs')}>
              Cancel
            </Button>
          </ActionGroup>
          <CopyAs text={text} isDisabled={Boolean(wrong)} />
        </Form>
      </PageSection>
    </>
  );
}
