// SPDX-License-Identifier: Apache-2.0

import { ActionGroup, Button, Form, FormGroup, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import type { Problem } from '../api/client';
import { useLive } from '../live/live-jobs';
import { useSession } from '../session/session';
import { ProblemAlert } from '../shared/states';
import { AllNamespaces } from './all-namespaces';

/** Refused is what users see who may not watch jobs: they can choose a namespace. */
export function Refused({ problem }: { problem: Problem }) {
  const { defaultNamespace } = useSession();
  const { namespace: watched, watchNamespace } = useLive();
  const [namespace, setNamespace] = useState(watched || defaultNamespace);
  return (
    <>
      <ProblemAlert title="You have no permission to see these jobs" problem={problem} />
      <Form
        isWidthLimited
        onSubmit={(event) => {
          event.preventDefault();
          if (namespace.trim()) watchNamespace(namespace.trim());
        }}
      >
        <FormGroup label="Show the jobs of one namespace" fieldId="only-namespace">
          <TextInput id="only-namespace" value={namespace} onChange={(_, value) => setNamespace(value)} />
        </FormGroup>
        <ActionGroup>
          <Button type="submit" variant="primary" isDisabled={!namespace.trim()}>
            Show jobs
          </Button>
          {watched && <AllNamespaces />}
        </ActionGroup>
      </Form>
    </>
  );
}
