// SPDX-License-Identifier: Apache-2.0

import '@patternfly/react-core/dist/styles/base.css';
import './page.css';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router';
import { App } from './app';
import { ErrorBoundary } from './shared/error-boundary';
import { reloadOnce } from './shared/reload';
import { applyTheme } from './shared/theme';

applyTheme();
window.addEventListener('vite:preloadError', () => void reloadOnce(Date.now()));
const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <StrictMode>
      <ErrorBoundary>
        <BrowserRouter>
          <App />
        </BrowserRouter>
      </ErrorBoundary>
    </StrictMode>,
  );
}
