// SPDX-License-Identifier: Apache-2.0

import { createElement, isValidElement, type ReactElement, type ReactNode } from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { expect, test, vi } from 'vitest';
import { ErrorBoundary } from './error-boundary';

// PatternFly imports style sheets, which Node cannot.
vi.mock('@patternfly/react-core', () => ({
  Alert: ({ title, children, actionLinks }: Record<'title' | 'children' | 'actionLinks', ReactNode>) => createElement('section', null, title, children, actionLinks),
  AlertActionLink: ({ children }: { children: ReactNode }) => createElement('button', null, children),
}));

test('an error is shown with Reload and the actions of the page', () => {
  const boundary = new ErrorBoundary({ children: 'page', actions: () => createElement('button', null, 'Discard draft') });
  expect(boundary.render()).toBe('page');
  boundary.state = ErrorBoundary.getDerivedStateFromError(new Error('Unresolved alias'));
  const shown = boundary.render();
  expect(isValidElement(shown)).toBe(true);
  const html = renderToStaticMarkup(shown as ReactElement);
  for (const want of ['The page cannot be shown', 'Unresolved alias', 'Reload', 'Discard draft']) expect(html).toContain(want);
});
