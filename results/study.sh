#!/bin/sh
# The study's data, in the order in which it is worth having. Every line is a sweep that does what is missing: run this
# again to go on. JOBS are programs at once for MinAtar (with NVIDIA's MPS 8, see docs/sweeps.md); MINUTES is the time for each
# sweep (a cell that is stopped begins anew: give it more than one takes); MORE is put behind each, as MORE=--dry-run, which
# shows what is missing. SEEDS are those to report with: SEEDS=0-19 adds seeds, and leaves alone those that chose settings.
#
#     JOBS=8 MINUTES=9 results/study.sh [rates|report|penalties|variants|means|settings|steps|atari|pong|atari-rates|longer ...]
set -eu
cd "$(dirname "$0")/.."
[ -d .venv/bin ] && PATH=$PWD/.venv/bin:$PATH
FOUR=Breakout-MinAtar,Asterix-MinAtar,SpaceInvaders-MinAtar,Seaquest-MinAtar
AGENTS=dqn,c51,s51,u51,qr
plain="--base-distribution uniform --mean-weight 0" # U51 as it was before the preset had what `means` tries
limits="--minutes ${MINUTES:-100000} ${MORE:-}"
common="--log-steps 50000 --iteration-steps 2000000 --checkpoints none --jobs ${JOBS:-1} $limits"
# Some runs at once, so that one is made while others learn; one iteration, for environments began anew with each, and 128 of
# them would have done so before an episode of Pong is over. More seeds are made in the same way.
emulated="--preset paper --num-envs 128 --checkpoints weights --environment-resets iteration --jobs ${ATARI_JOBS:-3} $limits"

PARTS="rates report penalties variants means settings steps atari pong atari-rates longer"

for part in "$@"; do
    known=no
    for one in $PARTS; do [ "$part" = "$one" ] && known=yes; done
    if [ $known = no ]; then
        echo "study.sh: parts are $PARTS; got '$part'" >&2
        exit 2
    fi
done
if [ $# -ne 1 ]; then # each for itself: one that waits for another, or failed, does not keep the rest from being done
    status=0
    for part in ${*:-$PARTS}; do
        results/study.sh "$part" || status=$?
        [ $status -lt 128 ] || exit $status # Ctrl-C
    done
    exit $status
fi
case $1 in
rates) # which learning rate, with seeds of its own
    cramerl sweep results/minatar-rates --agents $AGENTS --envs $FOUR --seeds 1000-1002 \
        --learning-rate 3e-5,1e-4,3e-4,1e-3 $plain --steps 1e6 $common
    # S51 is at its best at the lower edge in two games
    cramerl sweep results/minatar-rates --agents s51 --envs SpaceInvaders-MinAtar,Seaquest-MinAtar --seeds 1000-1002 \
        --learning-rate 1e-5,3e-5 --steps 1e6 $common ;;
report) # fresh seeds at the chosen rates
    cramerl sweep results/minatar --agents $AGENTS --envs $FOUR --seeds "${SEEDS:-0-11}" --best-of results/minatar-rates \
        $plain --steps 2e6 $common ;;
penalties) # the paper's sweep of lambda, in both conventions and both normalisations
    cramerl sweep results/minatar-penalties --agents s51 --envs Breakout-MinAtar,Asterix-MinAtar --seeds 2000-2002 \
        --mass-penalty 0,0.25,1,10,20,100 --mass-penalty-scale orthonormal,total --normalisation after,before \
        --learning-rate 1e-4 --steps 1e6 $common ;;
variants) # how far U51 can be taken
    cramerl sweep results/minatar-u51 --agents u51 --envs Breakout-MinAtar,Asterix-MinAtar,Seaquest-MinAtar \
        --seeds 3000-3002 --learning-rate 1e-4,3e-4 --base-distribution uniform,zero --mean-weight 0,0.1,1 --steps 1e6 $common ;;
means) # either Cramér agent with a weight on the mean: rates as for the others, then reported beside them
    cramerl sweep results/minatar-means --agents s51,u51 --envs $FOUR --seeds 4000-4002 --base-distribution zero --mean-weight 0.1 \
        --learning-rate 3e-5,1e-4,3e-4,1e-3 --steps 1e6 $common
    # S51 is at its best at the lower edge in three games
    cramerl sweep results/minatar-means --agents s51 --envs Asterix-MinAtar,SpaceInvaders-MinAtar,Seaquest-MinAtar \
        --seeds 4000-4002 --mean-weight 0.1 --learning-rate 1e-5,3e-5 --steps 1e6 $common
    cramerl sweep results/minatar --agents s51,u51 --envs $FOUR --seeds "${SEEDS:-0-11}" --base-distribution zero \
        --mean-weight 0.1 --best-of results/minatar-means --allow-variants --steps 2e6 $common ;;
settings) # what else U51 gains from: a wider support (of atoms twice as far apart) and several steps at
    # once, then Adam's epsilon
    tried="cramerl sweep results/minatar-settings --agents u51 --envs $FOUR --seeds 5000-5002 --base-distribution zero --mean-weight 0.1"
    $tried --learning-rate 1e-4 --n-step 1,3 --v-max 10,30 --steps 1e6 $common
    $tried --learning-rate 1e-4 --optimiser-epsilon 1e-8,3.125e-4 --allow-variants --steps 1e6 $common ;;
steps) # whether other agents gain and lose as much from several steps at once, each as the preset has it
    cramerl sweep results/minatar-steps --agents $AGENTS --envs Breakout-MinAtar,Asterix-MinAtar --seeds 6000-6002 \
        --n-step 1,3 --steps 1e6 $common ;;
atari) # the paper's figure: ten million frames of each game
    cramerl sweep results/atari --agents c51,s51,u51,dqn --envs pong,breakout,asterix,seaquest,space_invaders \
        --seeds "${SEEDS:-0}" --steps 2500000 --iteration-steps 2500000 --log-steps 25000 $emulated ;;
pong) # gymnax's game, as rates, means and report, after what a support that is too small does to it
    pong="--envs Pong-misc --seeds 1000-1002 --learning-rate 3e-5,1e-4,3e-4,1e-3 --steps 5e5 $common"
    cramerl sweep results/pong-misc-narrow --agents $AGENTS $plain --v-min -10 --v-max 10 --network auto $pong
    cramerl sweep results/pong-misc-support --agents c51,s51,u51 --envs Pong-misc --seeds 5000-5002 --v-max 10,100 \
        $plain --steps 2e5 $common --log-steps 10000
    weighted="--base-distribution zero --mean-weight 0.1"
    cramerl sweep results/pong-misc-rates --agents $AGENTS $plain $pong
    cramerl sweep results/pong-misc-means --agents s51,u51 $weighted $pong
    # S51 and U51 are at their best at the lower edge, S51 at the next one too
    cramerl sweep results/pong-misc-rates --agents s51,u51 $plain $pong --learning-rate 1e-5,3e-5
    cramerl sweep results/pong-misc-means --agents s51,u51 $weighted $pong --learning-rate 1e-5,3e-5
    cramerl sweep results/pong-misc-rates --agents s51 $pong --learning-rate 3e-6,1e-5
    cramerl sweep results/pong-misc-means --agents s51 --mean-weight 0.1 $pong --learning-rate 3e-6,1e-5
    fresh="--envs Pong-misc --seeds ${SEEDS:-0-9} --steps 2e6 $common"
    cramerl sweep results/pong-misc --agents $AGENTS $plain --best-of results/pong-misc-rates $fresh
    cramerl sweep results/pong-misc --agents s51,u51 $weighted --best-of results/pong-misc-means --allow-variants $fresh ;;
atari-rates) # is it the step? S51 and U51 on Pong, each with either's learning rate
    cramerl sweep results/atari-rates --agents s51,u51 --envs pong --seeds "${SEEDS:-0}" --learning-rate 2.5e-5,1e-4 \
        --steps 2500000 --iteration-steps 2500000 --log-steps 25000 $emulated ;;
longer) # more frames of Breakout, with another seed; those of Pong are in results/pong-longer
    cramerl sweep results/atari-longer --agents c51,u51,s51,dqn --envs breakout \
        --seeds "${SEEDS:-1}" --steps 3750000 --iteration-steps 3750000 --log-steps 50000 $emulated ;;
esac
