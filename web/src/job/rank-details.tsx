// SPDX-License-Identifier: Apache-2.0

import { ActionList, ActionListItem, Button, Card, CardBody, CardHeader, CardTitle, DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm } from '@patternfly/react-core';
import TimesIcon from '@patternfly/react-icons/dist/esm/icons/times-icon';
import { useEffect, useRef } from 'react';
import { Link } from 'react-router';
import type { JobStatus } from '../api/client';
import { duration, localTime, secondsBetween } from '../shared/time';
import { podOnHost } from './job-pods';
import { bytesOf, coresOf, stateLevel, type RankView } from './rank-levels';

interface Props {
  view: RankView;
  status: JobStatus;
  reportedTime: string | null;
  onClose: () => void;
}

/** RankDetails has all that is known of one rank, with links to its log. */
export function RankDetails({ view: { rank, cores }, status, reportedTime, onClose }: Props) {
  const pod = podOnHost(status, rank.host);
  const facts: [string, string | number | null | undefined][] = [
    ['Host', rank.host],
    ['Pod', pod?.name],
    ['Node', pod?.node],
    ['PID', rank.pid],
    ['State', `${stateLevel(rank).name} (${rank.state})`],
    ['Waits for', rank.waitsFor],
    ['CPU', `${coresOf(cores)}, ${duration(rank.cpuSeconds)} in total`],
    ['Memory', bytesOf(rank.memory)],
    ['Read', bytesOf(rank.bytesRead)],
    ['Written', bytesOf(rank.bytesWritten)],
    ['Started', localTime(rank.started)],
    ['Last output', rank.lastOutput && localTime(rank.lastOutput) + (reportedTime ? `, ${duration(secondsBetween(rank.lastOutput, reportedTime))} before the report` : '')],
    ['Step', rank.step],
  ];
  const card = useRef<HTMLDivElement>(null);
  // On a narrow page the details are below the ranks, where they may be out of sight.
  useEffect(() => card.current?.scrollIntoView?.({ block: 'nearest' }), []);
  return (
    <Card ref={card} isCompact component="section" aria-label={`Details of rank ${rank.rank}`}>
      <CardHeader actions={{ actions: <Button variant="plain" aria-label="Close the details" icon={<TimesIcon />} onClick={onClose} /> }}>
        <CardTitle component="h2">Rank {rank.rank}</CardTitle>
      </CardHeader>
      <CardBody className="tr-stack">
        <DescriptionList isCompact isHorizontal aria-label={`Rank ${rank.rank}`}>
          {facts
            .filter(([, value]) => value !== undefined && value !== null && value !== '')
            .map(([term, value]) => (
              <DescriptionListGroup key={term}>
                <DescriptionListTerm>{term}</DescriptionListTerm>
                <DescriptionListDescription>{value}</DescriptionListDescription>
              </DescriptionListGroup>
            ))}
        </DescriptionList>
        {rank.stack && rank.stack.length > 0 && (
          <pre className="tr-text" tabIndex={0} aria-label="Stack">
            {rank.stack.join('\n')}
          </pre>
        )}
        <ActionList>
          <ActionListItem>
            <Link to={{ search: `tab=logs&rank=${rank.rank}` }}>Log of rank {rank.rank}</Link>
          </ActionListItem>
          {pod && (
            <ActionListItem>
              <Link to={{ search: pod.log }}>Log of {pod.role.toLowerCase()}</Link>
            </ActionListItem>
          )}
        </ActionList>
      </CardBody>
    </Card>
  );
}
