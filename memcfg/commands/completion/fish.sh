# Completion of memcfg for fish. Now:      memcfg completion fish | source
# From now on: memcfg completion fish > ~/.config/fish/completions/memcfg.fish

function __memcfg_candidates
    set -l words (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    $program completion reply -- $words[2..-1] (commandline -ct) 2> /dev/null
end

complete -c memcfg -f -a '(__memcfg_candidates)'
