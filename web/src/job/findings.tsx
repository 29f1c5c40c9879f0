// SPDX-License-Identifier: Apache-2.0

import { List, ListItem } from '@patternfly/react-core';
import type { Finding } from '../api/client';

/** Findings are the results of checks, each with its remedy. */
export function Findings({ findings, none }: { findings: Finding[]; none: string }) {
  if (findings.length === 0) return <p>{none}</p>;
  return (
    <List isPlain isBordered>
      {findings.map((finding, index) => (
        <ListItem key={index}>
          <strong>
            {finding.rank}: {finding.title}
          </strong>
          {finding.object && <div>{finding.object}</div>}
          {finding.cause && <div className="tr-text">{finding.cause}</div>}
          {finding.fix && <div>To fix it: {finding.fix}</div>}
        </ListItem>
      ))}
    </List>
  );
}
