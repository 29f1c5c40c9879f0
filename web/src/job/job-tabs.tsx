// SPDX-License-Identifier: Apache-2.0

import { PageSection, Tab, Tabs, TabTitleText } from '@patternfly/react-core';
import { Suspense, type ComponentType } from 'react';
import { useSearchParams } from 'react-router';
import type { Job } from '../api/client';
import { Loading } from '../shared/states';
import type { JobRef } from './use-job';

export interface TabProps {
  job: Job;
  reference: JobRef;
}

interface Props extends TabProps {
  tabs: { id: string; name: string; Content: ComponentType<TabProps> }[];
}

/** JobTabs shows the parts of a job; the chosen one is in the address. */
export function JobTabs({ tabs, job, reference }: Props) {
  const [query, setQuery] = useSearchParams();
  const chosen = query.get('tab') ?? 'overview';
  return (
    <Tabs activeKey={chosen} onSelect={(_, id) => setQuery(id === 'overview' ? {} : { tab: String(id) }, { replace: true })} mountOnEnter unmountOnExit aria-label="Parts of the job" role="region">
      {tabs.map(({ id, name, Content }) => (
        <Tab key={id} eventKey={id} title={<TabTitleText>{name}</TabTitleText>}>
          <PageSection hasBodyWrapper={false} padding={{ default: 'noPadding' }} style={{ paddingBlockStart: '1rem' }}>
            <Suspense fallback={<Loading label={`Loading ${name}`} />}>
              <Content job={job} reference={reference} />
            </Suspense>
          </PageSection>
        </Tab>
      ))}
    </Tabs>
  );
}
