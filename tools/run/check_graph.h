// The command that says whether a graph is legal: `retrograd check`.
#ifndef RETROGRAD_TOOLS_RUN_CHECK_GRAPH_H_
#define RETROGRAD_TOOLS_RUN_CHECK_GRAPH_H_

#include <string>
#include <vector>

namespace retrograd {

struct CheckArguments {
  std::vector<std::string> graphs;  // files or names of models
  bool print = false;               // the text form of each, too
  std::string bind;                 // numbers for the graph's sizes; empty: as it is
  std::string output;               // of one graph: written there, as text if it ends in .rgt
};

// Reads and verifies each graph and prints what it holds, or its first violation with code and
// place. The exit status: 0 if all are legal (and written), else 1.
int CheckCommand(const CheckArguments& arguments);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_RUN_CHECK_GRAPH_H_
