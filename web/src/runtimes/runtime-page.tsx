// SPDX-License-Identifier: Apache-2.0

import { Breadcrumb, BreadcrumbItem, Content, EmptyState, PageSection, Tab, Tabs, TabTitleText, Title } from '@patternfly/react-core';
import { Link, useParams, useSearchParams } from 'react-router';
import { useSession } from '../session/session';
import { Loading, ProblemAlert } from '../shared/states';
import { fresh, textOf } from './runtime-document';
import { RuntimeEditor } from './runtime-editor';
import { RuntimeTest } from './runtime-test';
import { useRuntime } from './use-runtime';

/** RuntimePage edits and tests a runtime. */
export default function RuntimePage() {
  const { namespace = '', name = '' } = useParams();
  const [query, setQuery] = useSearchParams();
  const runtime = useRuntime({ namespace, name });
  if (runtime.isPending) return <Loading label="Loading the runtime" />;
  if (runtime.error?.code === 404) return <EmptyState titleText={`Runtime ${name} not found`} headingLevel="h1" />;
  if (runtime.error) return <ProblemAlert title="The runtime cannot be read" problem={runtime.error} />;
  const tab = query.get('tab') === 'test' ? 'test' : 'definition';
  const show = (key: string | number) => setQuery((old) => (key === 'test' ? { ...Object.fromEntries(old), tab: 'test' } : {}), { replace: true });
  return (
    <>
      <Head title={name} scope={namespace ? `Runtime of namespace ${namespace}` : 'Runtime of the cluster'} />
      <PageSection hasBodyWrapper={false} isFilled aria-label="Runtime">
        <Tabs activeKey={tab} onSelect={(_, key) => show(key)} mountOnEnter aria-label="Definition or test" role="region">
          <Tab eventKey="definition" title={<TabTitleText>Definition</TabTitleText>}>
            <RuntimeEditor key={name} text={textOf(runtime.data)} resourceVersion={runtime.data.metadata.resourceVersion} />
          </Tab>
          <Tab eventKey="test" title={<TabTitleText>Test</TabTitleText>}>
            <RuntimeTest runtime={runtime.data} reference={{ namespace, name }} />
          </Tab>
        </Tabs>
      </PageSection>
    </>
  );
}

/** NewRuntimePage creates a runtime: from a short example, or as a copy of another one. */
export function NewRuntimePage() {
  const [query] = useSearchParams();
  const { defaultNamespace } = useSession();
  return (
    <>
      <Head title="Create a runtime" scope="kind is ClusterTrainingRuntime for all namespaces, TrainingRuntime for one" />
      <PageSection hasBodyWrapper={false} isFilled aria-label="Runtime">
        <RuntimeEditor text={fresh(query.get('namespace') ?? defaultNamespace)} />
      </PageSection>
    </>
  );
}

function Head({ title, scope }: { title: string; scope: string }) {
  return (
    <PageSection hasBodyWrapper={false}>
      <Breadcrumb>
        <BreadcrumbItem>
          <Link to="/runtimes">Runtimes</Link>
        </BreadcrumbItem>
        <BreadcrumbItem isActive>{title}</BreadcrumbItem>
      </Breadcrumb>
      <div>
        <Title headingLevel="h1">{title}</Title>
        <Content component="small">{scope}</Content>
      </div>
    </PageSection>
  );
}
