// The simplest graphs to time: one op, again and again.
#ifndef RETROGRAD_TOOLS_CALIBRATE_CHAIN_GRAPH_H_
#define RETROGRAD_TOOLS_CALIBRATE_CHAIN_GRAPH_H_

#include <cstdint>
#include <string>

namespace retrograd {

// Text form of y = op(op(...x)) on so many elements; with a second operand y = op(b, op(b, ...x)).
std::string ChainGraph(const std::string& op, bool binary, int64_t elements, int links,
                       const std::string& dtype);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_CALIBRATE_CHAIN_GRAPH_H_
