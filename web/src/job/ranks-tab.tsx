// SPDX-License-Identifier: Apache-2.0

import './ranks.css';
import { Alert, Button, Content, EmptyState, EmptyStateBody, List, ListItem, ToggleGroup, ToggleGroupItem, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { useState } from 'react';
import { useSearchParams } from 'react-router';
import { Loading, ProblemAlert } from '../shared/states';
import { localTime } from '../shared/time';
import type { TabProps } from './job-tabs';
import { NotAvailable } from './not-available';
import { RankDetails } from './rank-details';
import { RankGrid } from './rank-grid';
import { isOdd, lenses, leveled, type Lens, type RankReport } from './rank-levels';
import { notAvailable, useRanks } from './use-reports';

/** RanksTab shows all ranks of a job that runs. What the colours show is in the address. */
export default function RanksTab({ job, reference }: TabProps) {
  const isRunning = job.status?.phase === 'Running';
  const ranks = useRanks(reference, isRunning);
  if (!isRunning) {
    return (
      <EmptyState titleText="The job is not running" headingLevel="h2">
        <EmptyStateBody>Agents report the ranks of a job while it runs.</EmptyStateBody>
      </EmptyState>
    );
  }
  if (ranks.error?.code === notAvailable) return <NotAvailable title="This server cannot read the ranks of jobs" problem={ranks.error} />;
  return (
    <>
      {ranks.error && <ProblemAlert title="The ranks cannot be read" problem={ranks.error} />}
      {ranks.isPending && <Loading label="Loading the ranks" />}
      {ranks.data && (ranks.data.reportedTime && ranks.data.ranks.length + ranks.data.unknownHosts.length > 0 ? <Ranks job={job} report={ranks.data} /> : <NoRanks report={ranks.data} />)}
    </>
  );
}

function NoRanks({ report }: { report: RankReport }) {
  return (
    <EmptyState titleText={report.reportedTime ? 'The agents have found no ranks' : 'The agents have not reported ranks'} headingLevel="h2">
      <EmptyStateBody>
        <p>The first report is sent a few seconds after mpirun has started. If it does not arrive, one of these is the cause:</p>
        <List isPlain>
          <ListItem>the cluster administrator has disabled reports, or a NetworkPolicy blocks the operator&apos;s port for them</ListItem>
          <ListItem>the workers run the sshd of their image, so they have no agent</ListItem>
          <ListItem>the program is not started by mpirun</ListItem>
        </List>
      </EmptyStateBody>
    </EmptyState>
  );
}

export function Ranks({ job, report }: { job: TabProps['job']; report: RankReport }) {
  const [query, setQuery] = useSearchParams();
  const [selected, setSelected] = useState('');
  const status = job.status ?? {};
  const lens: Lens = lenses.find(([id]) => id === query.get('show'))?.[0] ?? 'state';
  const { of, legend } = leveled(report, lens);
  const counts = new Map<string, number>();
  for (const view of report.ranks) counts.set(of(view).name, (counts.get(of(view).name) ?? 0) + 1);
  const odd = report.ranks.filter((view) => isOdd(view.rank, status.ranks?.odd));
  const details = report.ranks.find((view) => view.id === selected);
  const show = (next: Lens) => setQuery({ tab: 'ranks', ...(next === 'state' ? {} : { show: next }) }, { replace: true });

  return (
    <>
      {report.unknownHosts.length > 0 && (
        <Alert variant="warning" isInline title="The ranks of some hosts are not known" component="h2">
          <List>
            {report.unknownHosts.slice(0, 8).map(({ host, reason }) => (
              <ListItem key={host}>
                {host}: {reason}
              </ListItem>
            ))}
            {report.unknownHosts.length > 8 && <ListItem>…</ListItem>}
          </List>
        </Alert>
      )}
      <Toolbar aria-label="Ranks" inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem alignSelf="center">Colour shows</ToolbarItem>
          <ToolbarItem>
            <ToggleGroup aria-label="Colour shows">
              {lenses.map(([id, name]) => (
                <ToggleGroupItem key={id} buttonId={`lens-${id}`} text={name} isSelected={lens === id} onChange={() => show(id)} />
              ))}
            </ToggleGroup>
          </ToolbarItem>
          <ToolbarItem alignSelf="center">
            <Content component="small">
              {report.ranks.length}
              {status.ranks ? ` of ${status.ranks.total}` : ''} ranks, reported at {report.reportedTime && localTime(report.reportedTime)}
            </Content>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      <ul className="tr-legend" aria-label="Legend">
        {legend
          .filter((level) => lens !== 'state' || counts.has(level.name))
          .map((level) => (
            <li key={level.name}>
              <span className={`tr-rank tr-rank--small tr-rank--${level.color}`} aria-hidden>
                <strong>{level.letter}</strong>
              </span>
              {level.name} ({counts.get(level.name) ?? 0})
            </li>
          ))}
        {odd.length > 0 && (
          <li>
            <span className="tr-rank tr-rank--small tr-rank--odd" aria-hidden>
              <strong>!</strong>
            </span>
            Differs from the others ({odd.length}):
            {odd.slice(0, 8).map((view) => (
              <Button key={view.id} variant="link" isInline onClick={() => setSelected(view.id)}>
                rank {view.rank.rank}
              </Button>
            ))}
            {odd.length > 8 && '…'}
          </li>
        )}
      </ul>
      <div className={`tr-ranks${details ? ' tr-ranks--open' : ''}`}>
        <RankGrid report={report} lens={lens} odd={status.ranks?.odd} selected={selected} onSelect={setSelected} />
        {details && (
          <div className="tr-ranks__details">
            <RankDetails view={details} status={status} reportedTime={report.reportedTime} onClose={() => setSelected('')} />
          </div>
        )}
      </div>
    </>
  );
}
