// SPDX-License-Identifier: Apache-2.0

import { AlertActionLink } from '@patternfly/react-core';
import { lazy, Suspense } from 'react';
import { Navigate, Route, Routes, useLocation } from 'react-router';
import { removeDraft } from './create/draft';
import { JobPage } from './job/job-page';
import { JobsPage } from './jobs/jobs-page';
import { LiveJobs } from './live/live-jobs';
import { RuntimesPage } from './runtimes/runtimes-page';
import { Session } from './session/session';
import { ErrorBoundary } from './shared/error-boundary';
import { Layout } from './shared/layout';
import { Loading } from './shared/states';

const CreatePage = lazy(() => import('./create/create-page'));
const ClusterPage = lazy(() => import('./cluster/cluster-page'));
const HistoryPage = lazy(() => import('./history/history-page'));
const PastJobPage = lazy(() => import('./history/past-job-page'));
const RuntimePage = lazy(() => import('./runtimes/runtime-page'));
const NewRuntimePage = lazy(async () => ({ default: (await import('./runtimes/runtime-page')).NewRuntimePage }));

/** App has all pages; it knows nothing about the page that it is in. */
export function App() {
  return (
    <Session>
      <LiveJobs>
        <Layout>
          <Pages />
        </Layout>
      </LiveJobs>
    </Session>
  );
}

function Pages() {
  const { pathname, search } = useLocation();
  return (
    <ErrorBoundary address={pathname + search} actions={pathname === '/create' ? (dismiss) => <DiscardDraft onDone={dismiss} /> : undefined}>
      <Suspense fallback={<Loading label="Loading the page" />}>
        <Routes>
          <Route path="/jobs" element={<JobsPage />} />
          <Route path="/jobs/:namespace/:plural/:name" element={<JobPage />} />
          <Route path="/create" element={<CreatePage />} />
          <Route path="/cluster" element={<ClusterPage />} />
          <Route path="/history" element={<HistoryPage />} />
          <Route path="/history/:namespace/:plural/:uid" element={<PastJobPage />} />
          <Route path="/runtimes" element={<RuntimesPage />} />
          <Route path="/runtimes/new" element={<NewRuntimePage />} />
          <Route path="/runtimes/cluster/:name" element={<RuntimePage />} />
          <Route path="/runtimes/namespaces/:namespace/:name" element={<RuntimePage />} />
          <Route path="*" element={<Navigate to="/jobs" replace />} />
        </Routes>
      </Suspense>
    </ErrorBoundary>
  );
}

/** DiscardDraft is for a draft that the create page cannot show. */
function DiscardDraft({ onDone }: { onDone: () => void }) {
  const discard = () => {
    removeDraft();
    onDone();
  };
  return <AlertActionLink onClick={discard}>Discard draft</AlertActionLink>;
}
