// SPDX-License-Identifier: Apache-2.0

import { ActionGroup, Alert, Button, Form, List, ListItem, Spinner } from '@patternfly/react-core';
import { useState } from 'react';
import { useNavigate } from 'react-router';
import type { Schemas } from '../api/client';
import { syntaxError } from '../create/document';
import { YAMLEditor } from '../create/yaml-editor';
import { CopyButton } from '../shared/copy-button';
import { ProblemAlert } from '../shared/states';
import { refOf } from './runtime-document';
import { pathOf } from './runtime-ref';
import { useSaveRuntime, useValidateRuntime } from './use-runtime';

/** RuntimeEditor edits a runtime as YAML. Without a resourceVersion, the runtime is new. */
export function RuntimeEditor({ text: stored, resourceVersion }: { text: string; resourceVersion?: string }) {
  const [text, setText] = useState(stored);
  const save = useSaveRuntime(resourceVersion);
  const validate = useValidateRuntime(resourceVersion);
  const navigate = useNavigate();
  const wrong = syntaxError(text);
  const isBusy = save.isPending || validate.isPending;
  const change = (next: string) => {
    setText(next);
    save.reset();
    validate.reset();
  };
  const submit = () => {
    validate.reset();
    save.mutate(text, { onSuccess: (object) => resourceVersion || void navigate(pathOf(refOf(object))) });
  };
  return (
    <div className="tr-stack">
      <YAMLEditor label="YAML of the runtime" value={text} onChange={change} />
      <div aria-live="polite">
        {wrong && <Alert variant="danger" isInline title="The YAML is not valid" component="h2">{wrong}</Alert>}
        {isBusy && <Spinner size="md" aria-label="The server checks the runtime" />}
        {(save.error ?? validate.error) && <ProblemAlert title="The server does not accept the runtime" problem={(save.error ?? validate.error) as Error} />}
        {save.isSuccess && <Alert variant="success" isInline component="h2" title="The runtime is saved. Jobs that exist keep the runtime with which they were created" />}
        {validate.data && <Result findings={validate.data} />}
      </div>
      <Form onSubmit={(event) => event.preventDefault()}>
        <ActionGroup>
          <Button variant="primary" onClick={submit} isDisabled={Boolean(wrong) || isBusy || (Boolean(resourceVersion) && text === stored)}>
            {resourceVersion ? 'Save' : 'Create'}
          </Button>
          <Button variant="secondary" onClick={() => validate.mutate(text)} isDisabled={Boolean(wrong) || isBusy}>
            Validate
          </Button>
          <CopyButton label="Copy as YAML" text={text} variant="link" />
        </ActionGroup>
      </Form>
    </div>
  );
}

function Result({ findings: { errors, warnings } }: { findings: Schemas['Findings'] }) {
  const [variant, title] =
    errors.length > 0
      ? (['danger', 'The runtime is not valid'] as const)
      : warnings.length > 0
        ? (['warning', 'The runtime is valid, but may not do what you want'] as const)
        : (['success', 'The runtime is valid'] as const);
  return (
    <Alert variant={variant} isInline title={title} component="h2">
      <List>
        {[...errors, ...warnings].map(({ field, message }) => (
          <ListItem key={`${field} ${message}`}>
            {field && <code>{field}</code>} {message}
          </ListItem>
        ))}
      </List>
    </Alert>
  );
}
