// SPDX-License-Identifier: Apache-2.0

import { lazy, Suspense } from 'react';
import { Navigate, Route, Routes } from 'react-router';
import { JobPage } from './job/job-page';
import { JobsPage } from './jobs/jobs-page';
import { LiveJobs } from './live/live-jobs';
import { RuntimesPage } from './runtimes/runtimes-page';
import { Session } from './session/session';
import { Layout } from './shared/layout';
import { Loading } from './shared/states';

const CreatePage = lazy(() => import('./create/create-page'));

/** App has all pages; it knows nothing about the page that it is in. */
export function App() {
  return (
    <Session>
      <LiveJobs>
        <Layout>
          <Suspense fallback={<Loading label="Loading the page" />}>
            <Routes>
              <Route path="/jobs" element={<JobsPage />} />
              <Route path="/jobs/:namespace/:plural/:name" element={<JobPage />} />
              <Route path="/create" element={<CreatePage />} />
              <Route path="/runtimes" element={<RuntimesPage />} />
              <Route path="*" element={<Navigate to="/jobs" replace />} />
            </Routes>
          </Suspense>
        </Layout>
      </LiveJobs>
    </Session>
  );
}
