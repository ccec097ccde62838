// What the gradient of an average pool reads: along one axis each pixel adds up the windows that
// hold it, all of it views of the windows.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_WINDOW_TRIES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_WINDOW_TRIES_H_

#include "tests/support/graphs/random_graph/growing_graph.h"

namespace retrograd {

// False where no windows fit.
bool TryWindows(GrowingGraph& g);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_WINDOW_TRIES_H_
