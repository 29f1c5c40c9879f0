// SPDX-License-Identifier: Apache-2.0

import { EmptyState, EmptyStateBody } from '@patternfly/react-core';
import type { Problem } from '../api/client';

/** NotAvailable: the server itself cannot read reports of jobs. It is no error of the job. */
export function NotAvailable({ what, problem }: { what: string; problem: Problem }) {
  return (
    <EmptyState titleText={`This server cannot read the ${what} of jobs`} headingLevel="h2">
      <EmptyStateBody>
        <p>{problem.message}</p>
        {problem.suggestions.map((suggestion) => (
          <p key={suggestion}>{suggestion}</p>
        ))}
      </EmptyStateBody>
    </EmptyState>
  );
}
