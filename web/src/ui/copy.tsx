/** The same thing for a terminal or a program: a command, a request, a few lines of Python. */
import { tell } from "./toasts";
import { Panel } from "./parts";

export function CopyAs({ ways }: { ways: readonly (readonly [string, string])[] }) {
  async function copy(text: string): Promise<void> {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied.");
    } catch {
      tell("The browser does not let pages copy; select the text instead.", true);
    }
  }
  return (
    <Panel title="Elsewhere">
      <dl class="facts">
        {ways.map(([name, text]) => (
          <>
            <dt>{name}</dt>
            <dd>
              <code>{text}</code>{" "}
              <button type="button" class="plain" aria-label={`Copy for ${name}`} onClick={() => copy(text)}>
                Copy
              </button>
            </dd>
          </>
        ))}
      </dl>
    </Panel>
  );
}
