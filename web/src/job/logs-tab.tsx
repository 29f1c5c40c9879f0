// SPDX-License-Identifier: Apache-2.0

import { Alert, Button, Content, FormSelect, FormSelectOption, SearchInput, Switch, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { useMemo, useState } from 'react';
import { useSearchParams } from 'react-router';
import { ProblemAlert } from '../shared/states';
import type { TabProps } from './job-tabs';
import { asText, filtered, found, podOf } from './log-buffer';
import { folded } from './log-fold';
import { withLevel } from './log-levels';
import { LogLines } from './log-lines';
import { useLog } from './use-log';

const tails = [
  [1_000, 'Last 1,000 lines of each pod'],
  [100_000, 'Last 100,000 lines of each pod'],
] as const;

const levelChoices = [
  ['', 'All levels'],
  ['info', 'Information and above'],
  ['warning', 'Warnings and errors'],
  ['error', 'Errors'],
] as const;

/** LogsTab shows the logs of all pods, merged by time; of a record, that of the launcher. Pod, rank, level and search are in the address. */
export function LogsTab({ reference }: TabProps) {
  const [query, setQuery] = useSearchParams();
  const [tail, setTail] = useState<number>(tails[0][0]);
  const [isWrapped, setWrapped] = useState(false);
  const [isFolded, setFolded] = useState(false);
  const [isFollowed, setFollowed] = useState(!query.get('search'));
  const [match, setMatch] = useState(0);
  const { log, retry } = useLog(reference, tail);
  const pod = query.get('pod') ?? '';
  const search = query.get('search') ?? '';
  const wantedRank = query.get('rank') ?? '';
  const level = query.get('level') ?? '';

  const pods = useMemo(() => [...new Set(log.lines.map(podOf))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })), [log.lines]);
  const ranks = useMemo(() => [...new Set(log.lines.flatMap((line) => line.rank ?? []))].sort((a, b) => a - b), [log.lines]);
  // A log without ranks is shown completely: mpirun names them only if its runtime says so.
  const rank = ranks.length > 0 ? wantedRank : '';
  const isFoldable = ranks.length > 1 && !rank;
  const lines = useMemo(() => withLevel(filtered(log.lines, { pod, rank }), level), [log.lines, pod, rank, level]);
  const shown = useMemo(() => (isFolded && isFoldable ? folded(lines) : lines), [lines, isFolded, isFoldable]);
  const matches = useMemo(() => found(shown, search), [shown, search]);
  const position = matches.length === 0 ? 0 : ((match % matches.length) + matches.length) % matches.length;

  const setParameter = (name: string, value: string) => {
    const next = new URLSearchParams(query);
    if (value) next.set(name, value);
    else next.delete(name);
    setQuery(next, { replace: true });
  };
  const download = () => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([asText(lines)], { type: 'text/plain' }));
    link.download = `${reference.namespace}-${reference.name}.log`;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  return (
    <>
      <Toolbar aria-label="Log" inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem>
            <FormSelect aria-label="Pod" value={pod} onChange={(_, value) => setParameter('pod', value)}>
              <FormSelectOption value="" label="All pods" />
              {[...new Set([...pods, ...(pod ? [pod] : [])])].map((name) => (
                <FormSelectOption key={name} value={name} label={name} />
              ))}
            </FormSelect>
          </ToolbarItem>
          {ranks.length > 0 && (
            <ToolbarItem>
              <FormSelect aria-label="Rank" value={rank} onChange={(_, value) => setParameter('rank', value)}>
                <FormSelectOption value="" label="All ranks" />
                {[...new Set([...ranks, ...(rank ? [Number(rank)] : [])])].map((number) => (
                  <FormSelectOption key={number} value={String(number)} label={`Rank ${number}`} />
                ))}
              </FormSelect>
            </ToolbarItem>
          )}
          <ToolbarItem>
            <FormSelect aria-label="Level" value={level} onChange={(_, value) => setParameter('level', value)}>
              {levelChoices.map(([value, label]) => (
                <FormSelectOption key={value} value={value} label={label} />
              ))}
            </FormSelect>
          </ToolbarItem>
          <ToolbarItem>
            <SearchInput
              aria-label="Search in the log"
              placeholder="Search"
              value={search}
              onChange={(_, value) => {
                setMatch(0);
                setFollowed(false);
                setParameter('search', value);
              }}
              onClear={() => setParameter('search', '')}
              resultsCount={search ? `${matches.length === 0 ? 0 : position + 1} / ${matches.length}` : undefined}
              onNextClick={() => setMatch(position + 1)}
              onPreviousClick={() => setMatch(position - 1)}
            />
          </ToolbarItem>
          <ToolbarItem alignSelf="center">
            <Switch id="follow" label="Follow" isChecked={isFollowed} onChange={(_, checked) => setFollowed(checked)} />
          </ToolbarItem>
          <ToolbarItem alignSelf="center">
            <Switch id="wrap" label="Wrap" isChecked={isWrapped} onChange={(_, checked) => setWrapped(checked)} />
          </ToolbarItem>
          {isFoldable && (
            <ToolbarItem alignSelf="center">
              <Switch id="fold" label="Fold equal lines" isChecked={isFolded} onChange={(_, checked) => setFolded(checked)} />
            </ToolbarItem>
          )}
          {!reference.record && (
            <ToolbarItem>
              <FormSelect aria-label="Number of lines" value={tail} onChange={(_, value) => setTail(Number(value))}>
                {tails.map(([count, label]) => (
                  <FormSelectOption key={count} value={count} label={label} />
                ))}
              </FormSelect>
            </ToolbarItem>
          )}
          <ToolbarItem>
            <Button variant="secondary" onClick={download} isDisabled={lines.length === 0}>
              Download
            </Button>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {log.state === 'lost' && (
        <Alert variant="warning" isInline title="The connection to the log is lost. The page connects again by itself" component="h2">
          {log.problem?.message}
        </Alert>
      )}
      {log.state === 'failed' && log.problem && (
        <ProblemAlert
          title="The log cannot be read completely"
          problem={log.problem}
          actions={
            <Button variant="link" isInline onClick={retry}>
              Retry
            </Button>
          }
        />
      )}
      <Content component="small" aria-live="polite">
        {wantedRank && !rank && log.lines.length > 0 && 'This log does not name ranks: it shows all of them. '}
        {lines.length} lines{shown.length < lines.length ? `, folded to ${shown.length}` : ''}
        {log.state === 'reading' ? ', following' : log.state === 'complete' ? ', complete' : ''}
      </Content>
      <LogLines
        lines={shown}
        search={search}
        current={search ? (matches[position] ?? -1) : -1}
        isWrapped={isWrapped}
        isFollowed={isFollowed}
        onScrollUp={() => setFollowed(false)}
      />
    </>
  );
}
