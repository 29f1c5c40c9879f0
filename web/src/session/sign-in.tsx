// SPDX-License-Identifier: Apache-2.0

import { ActionGroup, Button, Checkbox, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, LoginPage, TextInput } from '@patternfly/react-core';
import { useState } from 'react';
import type { Problem } from '../api/client';
import { ProblemAlert } from '../shared/states';

/** SignIn asks for a token of the cluster. */
export function SignIn({ problem, onToken }: { problem: Problem | undefined; onToken: (token: string, keep: boolean) => void }) {
  const [token, setToken] = useState('');
  const [keep, setKeep] = useState(false);
  return (
    <LoginPage loginTitle="Sign in to Trireme" loginSubtitle="The dashboard acts with the permissions of your token.">
      {problem && <ProblemAlert title="You are signed out" problem={problem} />}
      <Form
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim()) onToken(token.trim(), keep);
        }}
      >
        <FormGroup label="Token" fieldId="token" isRequired>
          <TextInput id="token" type="password" autoComplete="off" value={token} onChange={(_, value) => setToken(value)} isRequired aria-describedby="token-help" />
          <FormHelperText>
            <HelperText id="token-help">
              <HelperTextItem>
                On OpenShift: <code>oc whoami --show-token</code>. Elsewhere: <code>kubectl create token NAME</code> for a ServiceAccount.
              </HelperTextItem>
            </HelperText>
          </FormHelperText>
        </FormGroup>
        <Checkbox id="keep" label="Keep me signed in until I close this tab" isChecked={keep} onChange={(_, checked) => setKeep(checked)} />
        <ActionGroup>
          <Button type="submit" variant="primary" isDisabled={!token.trim()}>
            Sign in
          </Button>
        </ActionGroup>
      </Form>
    </LoginPage>
  );
}

/** SessionEnded is shown when the proxy that has signed the user in no longer does. The proxy asks for the password when the page is loaded. */
export function SessionEnded({ problem }: { problem: Problem | undefined }) {
  return (
    <LoginPage loginTitle="Your session has ended">
      {problem && <ProblemAlert title="You are signed out" problem={problem} />}
      <Button variant="primary" onClick={() => location.reload()}>
        Sign in again
      </Button>
    </LoginPage>
  );
}
