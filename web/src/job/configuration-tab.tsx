// SPDX-License-Identifier: Apache-2.0

import { Button, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core';
import { useState } from 'react';
import { stringify } from 'yaml';
import { YAMLEditor } from '../create/yaml-editor';
import type { TabProps } from './job-page';

/** ConfigurationTab shows the job as YAML, without its status and what the API server adds. */
export default function ConfigurationTab({ job }: TabProps) {
  const [isCopied, setCopied] = useState(false);
  const { apiVersion, kind, metadata, spec } = job;
  const { name, namespace, labels, annotations } = metadata;
  const text = stringify({ apiVersion, kind, metadata: { name, namespace, labels, annotations }, spec });
  return (
    <>
      <Toolbar inset={{ default: 'insetNone' }}>
        <ToolbarContent>
          <ToolbarItem>
            <Button variant="secondary" onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}>
              {isCopied ? 'Copied' : 'Copy'}
            </Button>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      <YAMLEditor label="Configuration of the job" value={text} isReadOnly />
    </>
  );
}
