"""`latentbandits completion SHELL`: print a script that completes commands and options in a shell.

Print a script that completes commands, options and their values in a shell. For bash, add this
line to ~/.bashrc: source <(latentbandits completion bash). For zsh, the same with zsh to ~/.zshrc.
For fish: latentbandits completion fish > ~/.config/fish/completions/latentbandits.fish. The script
knows the commands whose extras are installed; print it again after an update.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from latentbandits.options import long_options, sub_commands

_BASH = """_latentbandits() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local words="" options=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}} $previous" in
{values}
      *) case "${{COMP_WORDS[1]}}" in
{options}
      esac ;;
    esac
  fi
  case "$current" in -*) words="$options" ;; esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _latentbandits latentbandits
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to complete in")


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits completion`; returns the exit code."""
    from latentbandits.cli.main import COMMANDS, build_parser

    parsers = sub_commands(build_parser())
    if arguments.shell == "fish":
        lines = [_fish_command(name, COMMANDS[name], parser) for name, parser in parsers.items()]
        script = "complete -c latentbandits -n __fish_use_subcommand -f\n" + "".join(lines)
    else:
        script = _bash(parsers)
    if arguments.shell == "zsh":
        script = f"autoload -U +X bashcompinit && bashcompinit\n{script}"
    sys.stdout.write(script)
    return 0


def _bash(parsers: dict[str, argparse.ArgumentParser]) -> str:
    values, options = [], []
    for name, parser in parsers.items():
        for option, action in long_options(parser).items():
            if action.choices is not None:
                chosen = " ".join(map(str, action.choices))
                values.append(f'      "{name} {option}") words="{chosen}" ;;')
        words, known = " ".join(sub_commands(parser)), " ".join(long_options(parser))
        options.append(f'        {name}) words="{words}" options="{known}" ;;')
    return _BASH.format(
        commands=" ".join(parsers), values="\n".join(values), options="\n".join(options)
    )


def _fish_command(name: str, line: str, parser: argparse.ArgumentParser) -> str:
    """Return the completions of a command in fish: its name, options and their values."""
    begin = "complete -c latentbandits -n"
    lines = [f"{begin} __fish_use_subcommand -a {name} -d {shlex.quote(line)}"]
    here = shlex.quote(f"__fish_seen_subcommand_from {name}")
    lines += [f"{begin} {here} -f -a {word}" for word in sub_commands(parser)]
    for option, action in long_options(parser).items():
        takes = "" if action.nargs == 0 else " -r"
        if action.choices is not None:
            takes += f" -f -a {shlex.quote(' '.join(map(str, action.choices)))}"
        lines.append(f"{begin} {here} -l {option[2:]}{takes}")
    return "\n".join(lines) + "\n"
