/** Colours of terminals (SGR) as classes; every other control character is left out. It makes text, never markup. */
import type { ComponentChildren } from "preact";

// biome-ignore lint: control characters are what this is about
const SGR = /\u001b\[([0-9;]*)m/g;
// Sequences that move cursors, set titles or make links, and invisible characters.
const OTHER = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b\[[0-9;?]*[A-Za-ln-z]|[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export function ansi(text: string): ComponentChildren {
  const clean = text.replace(OTHER, "");
  if (!clean.includes("\u001b")) return clean;
  const pieces: ComponentChildren[] = [];
  let style = { colour: "", bold: false };
  let from = 0;
  for (const found of clean.matchAll(SGR)) {
    if (found.index > from) pieces.push(piece(clean.slice(from, found.index), style, pieces.length));
    style = (found[1] || "0").split(";").reduce((now, code) => changed(now, Number(code)), style);
    from = found.index + found[0].length;
  }
  if (from < clean.length) pieces.push(piece(clean.slice(from), style, pieces.length));
  return pieces;
}

function changed(style: { colour: string; bold: boolean }, code: number): { colour: string; bold: boolean } {
  if (code === 0) return { colour: "", bold: false };
  if (code === 1) return { ...style, bold: true };
  if (code === 22) return { ...style, bold: false };
  if (code === 39) return { ...style, colour: "" };
  if (code >= 30 && code <= 37) return { ...style, colour: NAMES[code - 30] ?? "" };
  if (code >= 90 && code <= 97) return { ...style, colour: NAMES[code - 90] ?? "" };
  return style;
}

function piece(text: string, style: { colour: string; bold: boolean }, key: number): ComponentChildren {
  const plain = text.replaceAll("\u001b", "");
  if (!style.colour && !style.bold) return plain;
  return (
    <span key={key} class={`${style.colour ? `ansi-${style.colour}` : ""} ${style.bold ? "ansi-bold" : ""}`}>
      {plain}
    </span>
  );
}
