// SPDX-License-Identifier: Apache-2.0

import { Alert, Card, CardBody, CardTitle, FormSelect, FormSelectOption, PageSection, Progress, ProgressMeasureLocation, Title, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { useSearchParams } from 'react-router';
import { useLive } from '../live/live-jobs';
import { Loading, ProblemAlert } from '../shared/states';
import { amountText, percentOf, totalOf, type ClusterUse, type TimeRange } from './cluster-use';
import { NamespacesTable } from './namespaces-table';
import { NodesTable } from './nodes-table';
import { useCluster } from './use-cluster';
import { WaitingTable } from './waiting-table';

const ranges: [TimeRange, string][] = [
  ['1h', 'Last hour'],
  ['6h', 'Last 6 hours'],
  ['24h', 'Last 24 hours'],
  ['7d', 'Last 7 days'],
];

/** ClusterPage shows what the cluster has, who waits for it, and who has used it. */
export default function ClusterPage() {
  const [query, setQuery] = useSearchParams();
  const { namespace } = useLive();
  const range = ranges.find(([value]) => value === query.get('range'))?.[0] ?? '24h';
  const use = useCluster(namespace, range);
  return (
    <>
      <PageSection hasBodyWrapper={false}>
        <Toolbar inset={{ default: 'insetNone' }}>
          <ToolbarContent alignItems="center">
            <ToolbarItem>
              <Title headingLevel="h1">Cluster</Title>
            </ToolbarItem>
            <ToolbarItem align={{ default: 'alignEnd' }}>
              <FormSelect aria-label="Time range" value={range} onChange={(_, value) => setQuery({ range: value }, { replace: true })}>
                {ranges.map(([value, label]) => (
                  <FormSelectOption key={value} value={value} label={label} />
                ))}
              </FormSelect>
            </ToolbarItem>
          </ToolbarContent>
        </Toolbar>
      </PageSection>
      <PageSection hasBodyWrapper={false} isFilled aria-label="Use of the cluster">
        {use.isPending && <Loading label="Loading the use of the cluster" />}
        {use.error && <ProblemAlert title="The use of the cluster cannot be read" problem={use.error} />}
        {use.data && <Content use={use.data} namespace={namespace} />}
      </PageSection>
    </>
  );
}

function Content({ use, namespace }: { use: ClusterUse; namespace: string }) {
  return (
    <div className="tr-stack">
      {namespace && <Alert variant="info" isInline isPlain component="h2" title={`Only the jobs and quotas of namespace ${namespace}`} />}
      {use.jobsLeftOut > 0 && <Alert variant="info" isInline isPlain component="h2" title={`Without ${use.jobsLeftOut} jobs: older ones, and those whose runtime cannot be read`} />}
      {use.nodesMessage ? <Alert variant="info" isInline component="h2" title="You may not see the nodes">{use.nodesMessage}</Alert> : <Totals use={use} />}
      <Card>
        <CardTitle component="h2">Waiting jobs ({use.waiting.length})</CardTitle>
        <CardBody>
          <WaitingTable jobs={use.waiting} />
        </CardBody>
      </Card>
      <Card>
        <CardTitle component="h2">Namespaces</CardTitle>
        <CardBody>
          <NamespacesTable use={use} />
        </CardBody>
      </Card>
      {use.nodes.length > 0 && (
        <Card>
          <CardTitle component="h2">Nodes ({use.nodes.length})</CardTitle>
          <CardBody>
            <NodesTable nodes={use.nodes} />
          </CardBody>
        </Card>
      )}
    </div>
  );
}

/** Totals are what pods request of all nodes. */
function Totals({ use: { nodes } }: { use: ClusterUse }) {
  const shown = (['gpu', 'cpu', 'memory'] as const).map((resource) => ({ resource, total: totalOf(nodes, resource) })).filter(({ total }) => total.allocatable > 0);
  const names = { gpu: 'GPUs requested', cpu: 'CPUs requested', memory: 'Memory requested' };
  return (
    <div className="tr-columns tr-columns--totals">
      {shown.map(({ resource, total }) => (
        <Card key={resource}>
          <CardBody>
            <Progress title={names[resource]} value={percentOf(total)} label={amountText(resource, total)} valueText={amountText(resource, total)} measureLocation={ProgressMeasureLocation.top} />
          </CardBody>
        </Card>
      ))}
    </div>
  );
}
