// SPDX-License-Identifier: Apache-2.0

import { yaml } from '@codemirror/lang-yaml';
import { EditorState } from '@codemirror/state';
import { EditorView } from '@codemirror/view';
import { basicSetup } from 'codemirror';
import { useEffect, useRef } from 'react';
import { useTheme } from '../shared/theme';
import { look } from './editor-look';

interface Props {
  label: string;
  value: string;
  isReadOnly?: boolean;
  onChange?: (value: string) => void;
}

/**
 * YAMLEditor is in a shadow tree: there CodeMirror uses constructed style sheets, which the
 * page's policy allows, and no style elements, which it forbids.
 */
export function YAMLEditor({ label, value, isReadOnly = false, onChange }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView | null>(null);
  const change = useRef(onChange);
  const text = useRef(value);
  const theme = useTheme();

  useEffect(() => {
    change.current = onChange;
  }, [onChange]);

  useEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    const view = new EditorView({
      root,
      parent: root as unknown as Element,
      state: EditorState.create({
        doc: text.current,
        extensions: [
          basicSetup,
          yaml(),
          look(theme),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ 'aria-label': label }),
          EditorState.readOnly.of(isReadOnly),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            text.current = update.state.doc.toString();
            change.current?.(text.current);
          }),
        ],
      }),
    });
    editor.current = view;
    return () => view.destroy();
  }, [label, isReadOnly, theme]);

  useEffect(() => {
    const view = editor.current;
    if (!view || view.state.doc.toString() === value) return;
    text.current = value;
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
  }, [value]);

  return <div ref={host} className="tr-editor" />;
}
