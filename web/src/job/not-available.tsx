// SPDX-License-Identifier: Apache-2.0

import { EmptyState, EmptyStateBody } from '@patternfly/react-core';
import type { Problem } from '../api/client';

/** NotAvailable: the server itself cannot do what the page needs. It is no error of a job. */
export function NotAvailable({ title, problem }: { title: string; problem: Problem }) {
  return (
    <EmptyState titleText={title} headingLevel="h2">
      <EmptyStateBody>
        <p>{problem.message}</p>
        {problem.suggestions.map((suggestion) => (
          <p key={suggestion}>{suggestion}</p>
        ))}
      </EmptyStateBody>
    </EmptyState>
  );
}
