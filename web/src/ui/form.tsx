/** Fields of a form that is made from a schema; typed values are text until they are sent. */
import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import type { Field } from "../lib/schema";

interface Props {
  readonly fields: readonly Field[];
  /** The text of each field that was changed, by its name. */
  readonly texts: Signal<Readonly<Record<string, string>>>;
}

export function Fields({ fields, texts }: Props) {
  const set = (name: string, text: string) => {
    texts.value = { ...texts.value, [name]: text };
  };
  return (
    <div class="form">
      {fields.map((field) => (
        <Labelled key={field.name} name={field.name.replaceAll("_", " ")} required={field.required} about={field.about} flag={field.kind === "flag"}>
          {(id) => <Input id={id} field={field} text={texts.value[field.name] ?? field.initial} set={(text) => set(field.name, text)} />}
        </Labelled>
      ))}
    </div>
  );
}

interface LabelledProps {
  readonly name: string;
  readonly about?: string;
  readonly required?: boolean;
  readonly flag?: boolean;
  /** Makes the input, which has to have this id. */
  readonly children: (id: string) => ComponentChildren;
}

/** An input with its name, and a hint below it. */
export function Labelled({ name, about = "", required = false, flag = false, children }: LabelledProps) {
  const id = useId();
  return (
    <div class={`field ${flag ? "flag" : ""}`}>
      <label for={id}>{name}</label>
      {required && <span class="quiet"> required</span>}
      {children(id)}
      {about && <small>{about}</small>}
    </div>
  );
}

function Input({ id, field, text, set }: { id: string; field: Field; text: string; set: (text: string) => void }) {
  const changed = (event: { currentTarget: { value: string } }) => set(event.currentTarget.value);
  switch (field.kind) {
    case "flag":
      return <input id={id} type="checkbox" checked={text === "true"} onChange={(event) => set(String(event.currentTarget.checked))} />;
    case "choice":
      return (
        <select id={id} value={text} onChange={changed}>
          {field.choices.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      );
    case "lines":
      return <textarea id={id} value={text} placeholder="one in each line" onInput={changed} required={field.required} />;
    case "json":
      return <textarea id={id} class="mono" value={text} placeholder="JSON" onInput={changed} required={field.required} />;
    default:
      return <input id={id} value={text} inputMode={field.kind === "number" ? "decimal" : "text"} onInput={changed} required={field.required} />;
  }
}
