// SPDX-License-Identifier: Apache-2.0

import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import type { Extension } from '@codemirror/state';
import { EditorView } from '@codemirror/view';
import { tags } from '@lezer/highlight';

const colors = {
  light: { text: '#151515', background: '#fff', gutterText: '#4d4d4d', gutter: '#f2f2f2' },
  dark: { text: '#fff', background: '#1f1f1f', gutterText: '#c7c7c7', gutter: '#292929' },
};
export const darkBackground = colors.dark.background;

/** darkHighlight are the colours of YAML in the dark theme: CodeMirror's own are for a light background. */
export const darkHighlight = HighlightStyle.define([
  { tag: tags.definition(tags.propertyName), color: '#92c5f9' },
  { tag: [tags.string, tags.special(tags.string)], color: '#afdc8f' },
  { tag: [tags.keyword, tags.labelName], color: '#b6a6e9' },
  { tag: tags.typeName, color: '#9ad8d8' },
  { tag: tags.meta, color: '#ffe072' },
  { tag: tags.comment, color: '#f8ae54' },
  { tag: tags.invalid, color: '#faaca8' },
]);

/** look has the colours of the editor. */
export function look(theme: 'light' | 'dark'): Extension {
  const { text, background, gutterText, gutter } = colors[theme];
  const frame = EditorView.theme(
    {
      '&': { color: text, backgroundColor: background, height: '100%' },
      '.cm-gutters': { color: gutterText, backgroundColor: gutter },
      '.cm-content': { caretColor: text },
      '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'transparent' },
    },
    { dark: theme === 'dark' },
  );
  return theme === 'dark' ? [frame, syntaxHighlighting(darkHighlight)] : frame;
}
