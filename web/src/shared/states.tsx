// SPDX-License-Identifier: Apache-2.0

import { Alert, Bullseye, List, ListItem, Spinner } from '@patternfly/react-core';
import type { ReactNode } from 'react';
import { Problem } from '../api/client';

export function Loading({ label }: { label: string }) {
  return (
    <Bullseye>
      <Spinner aria-label={label} />
    </Bullseye>
  );
}

/** ProblemAlert shows an error of the API with its remedies. */
export function ProblemAlert({ title, problem, actions }: { title: string; problem: Error; actions?: ReactNode }) {
  const { suggestions = [], details = [] } = problem instanceof Problem ? problem : {};
  return (
    <Alert variant="danger" isInline title={title} actionLinks={actions} component="h2">
      <p className="tr-text">{problem.message}</p>
      {details.length > 0 && (
        <List>
          {details.map((detail) => (
            <ListItem key={detail.field + detail.reason}>
              <code>{detail.field}</code>: {detail.reason}
            </ListItem>
          ))}
        </List>
      )}
      {suggestions.length > 0 && (
        <List aria-label="What you can do">
          {suggestions.map((suggestion) => (
            <ListItem key={suggestion}>{suggestion}</ListItem>
          ))}
        </List>
      )}
    </Alert>
  );
}
